package drain

import (
	"context"
	"time"
)

// wait is a condition that Run's goroutine waits for, and what it does in the meantime. Every wait
// also handles results of calls.
type wait struct {
	reached   func() bool     // the condition
	until     time.Time       // latest end; zero: no limit
	cancelled <-chan struct{} // ends the wait when closed; nil for none

	relist func() bool   // reports whether a list of pods must be requested now; nil for never
	listed func(listing) // handles a list; if nil, a later wait handles it
	poll   func()        // called every resumePoll, if not nil
	news   func()        // called every newsPoll, if not nil
}

// waitEnd is why a wait ended.
type waitEnd int

const (
	reached   waitEnd = iota // the condition is true
	late                     // the time is over
	cancelled                // the cancellation
	ended                    // the context ended
)

// await waits. Run's goroutine blocks only here.
func (d *Drain) await(ctx context.Context, w wait) waitEnd {
	var over <-chan time.Time
	if !w.until.IsZero() {
		timer := time.NewTimer(time.Until(w.until))
		defer timer.Stop()
		over = timer.C
	}
	poll, stopPoll := every(resumePoll, w.poll)
	defer stopPoll()
	news, stopNews := every(newsPoll, w.news)
	defer stopNews()
	lists := d.lists.answers
	if w.listed == nil {
		lists = nil
	}
	for !w.reached() {
		if w.relist != nil && w.relist() {
			d.relist(ctx)
		}
		select {
		case r := <-d.calls.results:
			d.note(r)
		case l := <-lists:
			w.listed(l)
		case <-poll:
			w.poll()
		case <-news:
			w.news()
		case <-over:
			return late
		case <-w.cancelled:
			return cancelled
		case <-ctx.Done():
			return ended
		}
	}
	return reached
}

// every returns a ticker channel for a repeated call; nil if call is nil.
func every(interval time.Duration, call func()) (ticks <-chan time.Time, stop func()) {
	if call == nil {
		return nil, func() {}
	}
	ticker := time.NewTicker(interval)
	return ticker.C, ticker.Stop
}

// nextList waits for the next list of pods until a time, and makes it the current one.
func (d *Drain) nextList(ctx context.Context, until time.Time) (l listing, end waitEnd) {
	got := false
	end = d.await(ctx, wait{
		reached:   func() bool { return got },
		until:     until,
		cancelled: d.life.cancelled,
		relist:    func() bool { return true },
		listed: func(next listing) {
			d.take(next)
			l, got = next, true
		},
	})
	return l, end
}

// awaitStuck waits once more for containers that did not stop within their phase, and then checks
// them. Each of its calls has its own deadline.
func (d *Drain) awaitStuck(ctx context.Context, until time.Time) {
	quiet := func() bool { return !d.any((*pod).busy) }
	if !quiet() {
		d.lists.settled = false
	}
	d.await(ctx, wait{
		reached:   func() bool { return quiet() && d.lists.settled },
		until:     until,
		cancelled: d.life.cancelled,
		relist:    quiet,
		listed: func(l listing) {
			d.take(l)
			d.release()
			d.lists.settled = quiet() && d.settles(l)
		},
	})
}

// awaitSandboxes waits shortly for the sandboxes of a phase. The shutdown does not wait for those
// of the last phase, because the runtime stops after this service.
func (d *Drain) awaitSandboxes(ctx context.Context, atMost time.Duration) {
	d.await(ctx, wait{
		reached:   func() bool { return !d.any((*pod).tears) },
		until:     time.Now().Add(atMost),
		cancelled: d.life.cancelled,
	})
}

// awaitCalls waits for the calls in progress after a cancellation.
func (d *Drain) awaitCalls(ctx context.Context) {
	atMost := cancelWait
	for _, p := range d.pods {
		for _, c := range p.containers {
			if c.state.inProgress() {
				atMost = min(atMost, time.Until(c.kill)-killMargin)
			}
		}
	}
	switch d.await(ctx, wait{
		reached:   func() bool { return !d.any((*pod).busy) },
		until:     time.Now().Add(atMost),
		cancelled: d.life.abandoned,
	}) {
	case late, cancelled:
		d.calls.giveUp()
	}
}

// leaveToNext waits for the stops that were just requested, so that the record shows which were not
// requested.
func (d *Drain) leaveToNext() {
	if d.life.leaving == nil {
		return
	}
	d.await(context.Background(), wait{
		reached: func() bool { return !d.any((*pod).busy) },
		until:   time.Now().Add(2 * requestMargin),
	})
}
