package controlplane

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
)

// ErrNoAnswer is the cause of a cancelled call whose caller did not cancel it: the server did not
// answer.
var ErrNoAnswer = fmt.Errorf("%w: %w", ErrUnavailable, context.DeadlineExceeded)

// Bound adds a deadline to a call that has none. If the deadline of the call passes, also one of its caller, the cause
// is ErrNoAnswer. To report that cause, a caller's deadline ends the call a millisecond early.
func Bound(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if at, has := ctx.Deadline(); has {
		return context.WithDeadlineCause(ctx, at.Add(-time.Millisecond), ErrNoAnswer)
	}
	return context.WithTimeoutCause(ctx, d, ErrNoAnswer)
}

// CheckCall returns an error if the context has ended, and ErrInvalid if the object's name is empty,
// too long, or could be read as a path.
func CheckCall(ctx context.Context, operation, name string) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%s %q: %w", operation, name, context.Cause(ctx))
	}
	if faults := validation.IsDNS1123Subdomain(name); len(faults) > 0 {
		return fmt.Errorf("%s %q: %w: %s", operation, name, ErrInvalid, faults[0])
	}
	return nil
}
