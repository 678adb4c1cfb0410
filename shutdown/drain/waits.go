package drain

import (
	"context"
	"time"
)

// awaitStuck gives what did not stop within its phase its last chance, and
// looks what became of it. Each call has a deadline of its own.
func (d *Drain) awaitStuck(ctx, calls context.Context) {
	over := time.NewTimer(time.Until(d.deadline))
	defer over.Stop()
	if d.any((*pod).busy) {
		d.settled = false
	}
	for d.any((*pod).busy) || !d.settled {
		if !d.any((*pod).busy) {
			d.relist(ctx)
		}
		select {
		case r := <-d.results:
			d.note(calls, r)
		case l := <-d.lists:
			d.take(l)
			d.release(calls)
			d.settled = !d.any((*pod).busy) && d.settles(l)
		case <-over.C:
			return
		case <-d.cancelled:
			return
		case <-ctx.Done():
			return
		}
	}
}

// awaitSandboxes gives the sandboxes of a phase a moment. The lock is not held
// for those of the last one: the runtime outlives this service.
func (d *Drain) awaitSandboxes(ctx, calls context.Context, atMost time.Duration) {
	over := time.NewTimer(atMost)
	defer over.Stop()
	for d.any((*pod).tears) {
		select {
		case r := <-d.results:
			d.note(calls, r)
		case <-over.C:
			return
		case <-d.cancelled:
			return
		case <-ctx.Done():
			return
		}
	}
}

// windDown waits for the calls in flight after a cancellation.
func (d *Drain) windDown(ctx, calls context.Context, giveUp func()) {
	atMost := cancelWait
	for _, p := range d.pods {
		for _, c := range p.containers {
			if c.state.underWay() {
				atMost = min(atMost, time.Until(c.kill)-killRoom)
			}
		}
	}
	wait := time.NewTimer(atMost)
	defer wait.Stop()
	for d.any((*pod).busy) {
		select {
		case r := <-d.results:
			d.note(calls, r)
		case <-wait.C:
			giveUp()
			return
		case <-d.abandoned:
			giveUp()
			return
		case <-ctx.Done():
			return
		}
	}
}

// handOver waits for what has just been asked of the runtimes, so that the next process reads
// on record who was not.
func (d *Drain) handOver(calls context.Context) {
	if d.leaving == nil {
		return
	}
	over := time.NewTimer(2 * askRoom)
	defer over.Stop()
	for d.any((*pod).busy) {
		select {
		case r := <-d.results:
			d.note(calls, r)
		case <-over.C:
			return
		}
	}
}
