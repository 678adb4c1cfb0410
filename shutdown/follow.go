package shutdown

import (
	"context"
	"slices"
	"time"

	"hostler.io/hostler/internal/bounded"
)

const (
	// checkPause is the interval between checks of a started service. The checks end when it has
	// run for steady, or when it has been starting or unknown for startsBound.
	checkPause  = 5 * time.Second
	steady      = 30 * time.Second
	startsBound = 10 * time.Minute
)

// follow shows a service in the status if it has failed after its start. It does not restart the
// service: systemd or a user decides that. It ends when the service has run for a while, or has
// been starting for too long.
func (r *reviver) follow(ctx context.Context, name string, since time.Time) {
	failed := false
	var up, unfailed time.Duration // durations
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
		case err != nil || starting: // nothing new
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

// endFollowing ends the checks of started services.
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
