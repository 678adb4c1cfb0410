// Package collect carries plans of package gc out: it removes images and dead
// containers, asks again right before removals what is in use, and measures on the
// filesystem what they brought.
//
// It owns the two collectors, [Images] and [Containers]. It refuses to decide what goes,
// which is gc's, or when, to believe sizes, and to remove anything of a runtime that does
// not answer.
package collect

import (
	"context"
	"errors"

	"hostler.io/hostler/gc/survey"
	"hostler.io/hostler/runtime"
)

// isDown reports whether a removal failed because the runtime does not answer, and
// not because it cannot cope with this one object: the oldest would then keep all
// others from going, in every run.
func isDown(ctx context.Context, rt survey.Runtime, err error) bool {
	if !errors.Is(err, runtime.ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	_, err = runtime.Within(ctx, survey.Timeout, rt.Info)
	return err != nil
}
