package discovery

import (
	"context"
	"time"

	"hostler.io/hostler/runtime"
)

// retryPause is the first pause after a runtime did not answer: it may just be starting.
const retryPause = 200 * time.Millisecond

// Run checks the health of the runtimes until ctx ends. It calls heartbeat with the result of each
// round. It calls changed once all have been checked, and when runtimes appeared, disappeared or changed
// their health.
func (r *Runtimes) Run(ctx context.Context, heartbeat func(error), changed func(before, after []runtime.Health)) error {
	var retry time.Duration
	before, asked := r.Current()
	for {
		began := time.Now()
		err := r.Refresh(ctx)
		heartbeat(err)
		after, now := r.Current()
		if now != asked || differ(before, after) {
			changed(before, after)
		}
		before, asked = after, now
		pause := Interval
		if err != nil || r.Complete() != nil {
			retry = min(max(2*retry, retryPause), Interval)
			pause = retry
		} else {
			retry = 0
		}
		if err := r.searchUntil(ctx, began.Add(pause)); err != nil { // a runtime that hangs has taken time already
			return err
		}
	}
}

// searchUntil searches for new runtimes until over, or until Search finds one.
func (r *Runtimes) searchUntil(ctx context.Context, over time.Time) error {
	for {
		left := time.Until(over)
		select {
		case <-time.After(min(left, searchInterval)):
			if left <= searchInterval || r.Search(ctx) {
				return nil
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// differ reports whether runtimes appeared, disappeared or changed their health.
func differ(before, after []runtime.Health) bool {
	if len(before) != len(after) {
		return true
	}
	for i := range after {
		if before[i].Ready != after[i].Ready || before[i].Name != after[i].Name {
			return true
		}
	}
	return false
}
