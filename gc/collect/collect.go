// Package collect carries out plans of package gc. It removes images and dead containers, checks
// right before each removal what is in use, and measures the freed space on the filesystem.
//
// It owns the two collectors, [Images] and [Containers]. Package gc decides what is removed. It
// does not trust sizes, and removes nothing of a runtime that does not answer.
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
