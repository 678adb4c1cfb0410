package systemd

import (
	"context"
	"time"

	"hostler.io/hostler/internal/bounded"
	"hostler.io/hostler/systemd/logindconf"
)

// quiet is the minimum time between two reads of the files. Programs may overwrite each other's
// changes, and each check that finds a change costs several calls.
const quiet = time.Second

// delayView is the last known state on which the delay depends.
type delayView struct {
	granted time.Duration
	files   string // names, sizes and times of the files
}

// follow sends on changed when the delay may have changed: when logind's files were written,
// removed or opened. logind opens them when it reads them again, and announces nothing. changed has
// a buffer of one. follow returns when ctx ends, or when it cannot continue, with the cause. It
// closes watcher.
func (m *longestDelay) follow(ctx context.Context, watcher *logindconf.Watcher, changed chan<- struct{}) error {
	stop := context.AfterFunc(ctx, watcher.Close)
	defer stop()
	defer watcher.Close()
	var last delayView // zero, so that the first event counts
	for {
		if err := watcher.Await(); err != nil {
			return err
		}
		// The state may be as at the last check, but another caller has seen a different delay in
		// between.
		seen := time.Duration(m.seen.Load())
		if now := m.view(ctx); now != last || seen != 0 && now.granted != 0 && now.granted != seen {
			last = now
			select {
			case changed <- struct{}{}:
			default: // a token is pending
			}
		}
		if bounded.Sleep(ctx, quiet) != nil {
			return ctx.Err()
		}
	}
}

// view reads the state without opening a file, because follow would see that as a change. If logind
// does not answer, the bus connection reports it.
func (m *longestDelay) view(ctx context.Context) delayView {
	granted, _ := m.MaxDelay(ctx)
	return delayView{granted, logindconf.Fingerprint(m.root)}
}
