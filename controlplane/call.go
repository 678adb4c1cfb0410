package controlplane

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
)

// ErrNoAnswer is the cause of a call's end that its caller has not ended: whoever is called
// does not answer.
var ErrNoAnswer = fmt.Errorf("%w: %w", ErrUnavailable, context.DeadlineExceeded)

// Bound gives a call of a Client a deadline if its caller did not. The cause of an end
// by it is an ErrUnavailable, and context.DeadlineExceeded.
func Bound(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if _, has := ctx.Deadline(); has {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, d, ErrNoAnswer)
}

// CheckCall refuses a call of a Client whose context has ended, or whose object has a
// name that no control plane would take, or would take for a path: ErrInvalid.
func CheckCall(ctx context.Context, operation, name string) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%s %q: %w", operation, name, context.Cause(ctx))
	}
	if faults := validation.IsDNS1123Subdomain(name); len(faults) > 0 {
		return fmt.Errorf("%s %q: %w: %s", operation, name, ErrInvalid, faults[0])
	}
	return nil
}
