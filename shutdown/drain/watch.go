package drain

import (
	"context"
	"slices"
	"time"
)

const (
	// maxReturns is how often a container that is started again is stopped again.
	maxReturns = 3
	// returnGrace is the minimum grace period for each of these stops.
	returnGrace = 10 * time.Second
)

// watch continues a manual drain until no container was started again for the time Watch. A
// container that is started again each time is left running, and the record has its name.
func (d *Drain) watch(ctx context.Context) {
	if d.options.Watch == 0 {
		return
	}
	if d.life.ended(ctx) {
		return
	}
	d.record.Watching = true
	d.publish()
	defer func() { d.record.Watching = false }()
	last := len(d.schedule.phases) - 1
	for returns := 0; !d.life.ended(ctx); returns++ {
		if !d.restarts(ctx) || returns == maxReturns {
			return
		}
		end := time.Now().Add(max(time.Until(d.schedule.due(last)), returnGrace))
		d.launch(last, end)
		d.awaitStuck(ctx, end.Add(4*d.schedule.slack))
	}
}

// restarts waits for the time Watch, and reports whether a container was started again and must be
// stopped.
func (d *Drain) restarts(ctx context.Context) (came bool) {
	d.await(ctx, wait{
		reached:   func() bool { return came },
		until:     time.Now().Add(d.options.Watch),
		cancelled: d.life.cancelled,
		poll:      func() { d.relist(ctx) },
		listed: func(l listing) {
			d.take(l)
			for _, phase := range d.plan().Phases {
				came = came || slices.ContainsFunc(phase.Pods, d.runsUnrequested)
			}
		},
	})
	return came
}
