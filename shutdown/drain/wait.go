package drain

import (
	"context"
	"time"
)

// wait is what Run's goroutine waits for, and what it does meanwhile. Every wait also handles results
// of calls.
type wait struct {
	reached   func() bool     // what is waited for
	until     time.Time       // at the latest; no limit if zero
	cancelled <-chan struct{} // ends the wait when it is closed; nil for none

	relist func() bool   // reports whether a list of pods is needed now; nil for never
	listed func(listing) // handles a list; if nil, a later wait does
	poll   func()        // called every resumePoll, if not nil
	news   func()        // called every newsPoll, if not nil
}

// waitEnd is why a wait ended.
type waitEnd int

const (
	reached   waitEnd = iota // what was waited for
	late                     // its time is over
	cancelled                // its cancellation
	ended                    // its context has ended
)

// await waits. It is the only place where Run's goroutine blocks.
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

// every returns the ticks for a call that is repeated; none if call is nil.
func every(interval time.Duration, call func()) (ticks <-chan time.Time, stop func()) {
	if call == nil {
		return nil, func() {}
	}
	ticker := time.NewTicker(interval)
	return ticker.C, ticker.Stop
}

// nextList waits for a list of pods until a time, and makes it the current one.
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

// awaitStuck waits once more for containers that did not stop within their phase, and checks them.
// Each call has a deadline of its own.
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

// awaitSandboxes waits a moment for the sandboxes of a phase. The lock is not held for those of the
// last phase, because the runtime stops after this service.
func (d *Drain) awaitSandboxes(ctx context.Context, atMost time.Duration) {
	d.await(ctx, wait{
		reached:   func() bool { return !d.any((*pod).tears) },
		until:     time.Now().Add(atMost),
		cancelled: d.life.cancelled,
	})
}

// awaitCalls waits for the calls in flight after a cancellation.
func (d *Drain) awaitCalls(ctx context.Context) {
	atMost := cancelWait
	for _, p := range d.pods {
		for _, c := range p.containers {
			if c.state.underWay() {
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

// leaveToNext waits for the stops that were just requested, so that the record says which were not.
func (d *Drain) leaveToNext() {
	if d.life.leaving == nil {
		return
	}
	d.await(context.Background(), wait{
		reached: func() bool { return !d.any((*pod).busy) },
		until:   time.Now().Add(2 * requestMargin),
	})
}
