package systemd

import (
	"context"
	"time"

	"hostler.io/hostler/internal/bounded"
	"hostler.io/hostler/systemd/logindconf"
)

// quiet is the least time between two reads of the files: they may be fought
// over, and each check that finds a change costs some calls.
const quiet = time.Second

// delayView is what the longest delay depends on, as it was seen last.
type delayView struct {
	granted time.Duration
	files   string // which there are, of what size and age
}

// follow sends on changed when the longest delay may have changed: when logind's
// files were written, removed or, which logind does when it reads them again,
// opened. logind itself announces neither. changed has a buffer of one. follow ends
// with ctx, or says why it cannot continue; it closes watcher.
func (m *longestDelay) follow(ctx context.Context, watcher *logindconf.Watcher, changed chan<- struct{}) error {
	stop := context.AfterFunc(ctx, watcher.Close)
	defer stop()
	defer watcher.Close()
	var last delayView // of nothing: the first event counts, whatever it was
	for {
		if err := watcher.Await(); err != nil {
			return err
		}
		// Also if it is as at the last check: another caller may have seen a different delay in
		// between.
		seen := time.Duration(m.seen.Load())
		if now := m.view(ctx); now != last || seen != 0 && now.granted != 0 && now.granted != seen {
			last = now
			select {
			case changed <- struct{}{}:
			default: // one is pending
			}
		}
		if bounded.Sleep(ctx, quiet) != nil {
			return ctx.Err()
		}
	}
}

// view reads the state without opening a file, which would be noticed as a change. The bus reports
// if logind does not answer.
func (m *longestDelay) view(ctx context.Context) delayView {
	granted, _ := m.MaxDelay(ctx)
	return delayView{granted, logindconf.Fingerprint(m.root)}
}
