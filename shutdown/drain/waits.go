package drain

import (
	"context"
	"time"
)

// awaitStuck gives what did not stop within its phase its last chance, and
// looks what became of it. Each call has a deadline of its own.
func (d *Drain) awaitStuck(ctx context.Context) {
	over := time.NewTimer(time.Until(d.deadline))
	defer over.Stop()
	if len(d.waiting) > 0 {
		d.settled = false
	}
	for len(d.waiting) > 0 || !d.settled {
		if len(d.waiting) == 0 {
			d.relist(ctx)
		}
		select {
		case r := <-d.results:
			d.note(r)
		case l := <-d.lists:
			d.take(l)
			d.settled = len(d.waiting) == 0 && d.settles(l)
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
func (d *Drain) awaitSandboxes(ctx context.Context, atMost time.Duration) {
	over := time.NewTimer(atMost)
	defer over.Stop()
	for len(d.tearing) > 0 {
		select {
		case r := <-d.results:
			d.note(r)
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
func (d *Drain) windDown(ctx context.Context, giveUp func()) {
	atMost := cancelWait
	for _, e := range d.ends {
		if !e.done {
			atMost = min(atMost, time.Until(e.kill)-killRoom)
		}
	}
	wait := time.NewTimer(atMost)
	defer wait.Stop()
	for len(d.waiting) > 0 {
		select {
		case r := <-d.results:
			d.note(r)
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
func (d *Drain) handOver() {
	if d.leaving == nil {
		return
	}
	over := time.NewTimer(2 * askRoom)
	defer over.Stop()
	for len(d.waiting) > 0 {
		select {
		case r := <-d.results:
			d.note(r)
		case <-over.C:
			return
		}
	}
}
