// Package collect executes plans of package gc. It removes images and dead containers, checks right
// before each removal what is in use, and measures the freed space on the filesystem.
//
// It owns the two collectors, [Images] and [Containers]. Package gc decides what is removed.
// Reported sizes are not trusted. If a runtime does not answer, nothing of it is removed.
package collect

import (
	"context"
	"errors"

	"hostler.io/hostler/gc/survey"
	"hostler.io/hostler/runtime"
)

// isDown reports whether a removal failed because the runtime does not answer. Otherwise only this
// object cannot be removed, and the run must continue: in every run, the oldest object would block
// all others.
func isDown(ctx context.Context, rt survey.Runtime, err error) bool {
	if !errors.Is(err, runtime.ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	_, err = runtime.Within(ctx, survey.Timeout, rt.Info)
	return err != nil
}
