package shutdown

import (
	"context"
	"slices"
	"time"

	"hostler.io/hostler/internal/bounded"
)

const (
	// checkPause is how often a service that was started again is checked, until it has been
	// up for steady, or has been about to be up, or has told nothing, for startsBound.
	checkPause  = 5 * time.Second
	steady      = 30 * time.Second
	startsBound = 10 * time.Minute
)

// follow has the status report a service that was started at a time and has failed, for as long
// as it has: what becomes of that is systemd's affair, or a person's. It ends once that is up for
// good, or has been about to be for long.
func (r *reviver) follow(ctx context.Context, name string, since time.Time) {
	failed := false
	var up, unfailed time.Duration // for how long
	for up < steady && unfailed < startsBound {
		call, cancel := context.WithTimeout(ctx, reviveBound)
		starting, result, err := r.starter.UnitStart(call, name, since)
		cancel()
		pause := checkPause
		switch {
		case ctx.Err() != nil:
			return
		case err == nil && result != "":
			if !failed {
				r.log.Warn("service failed after restart", "unit", name, "result", result)
			}
			failed, up, unfailed, pause = true, 0, 0, revivePause
			r.noteDown(ctx, name, NotStarted{Unit: name, Reason: result, Failed: true})
		case err != nil || starting: // as far as is known it fares as before
			up, unfailed = 0, unfailed+pause
		default:
			up, unfailed = up+pause, unfailed+pause
			r.noteDown(ctx, name)
		}
		_ = bounded.Sleep(ctx, pause)
	}
	if failed && up >= steady {
		r.log.Info("failed service recovered", "unit", name)
	}
	r.noteDown(ctx, name)
}

// endFollowing has nobody told any more how those fare that were started.
func (r *reviver) endFollowing() {
	if r.following == nil {
		return
	}
	r.following()
	r.following = nil
	r.change(func(s *Status) {
		s.NotStarted = slices.DeleteFunc(slices.Clone(s.NotStarted), func(n NotStarted) bool { return n.Failed })
	})
}
