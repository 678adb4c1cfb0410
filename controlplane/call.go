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

// NoAnswer returns why a call has ended without an answer: ErrNoAnswer if its deadline has passed, also one that its
// caller has set, or the cause of its caller.
func NoAnswer(ctx context.Context) error {
	if cause := context.Cause(ctx); cause != context.DeadlineExceeded { // a cause of the caller may wrap it
		return cause
	}
	return ErrNoAnswer
}

// Bound adds a deadline to a call that has none. If it passes, the cause is ErrUnavailable and
// context.DeadlineExceeded.
func Bound(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if _, has := ctx.Deadline(); has {
		return context.WithCancel(ctx)
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
