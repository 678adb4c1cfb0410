package drain

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/shutdown/plan"
)

// target is a container to stop.
type target struct {
	plan.PlannedContainer
	asked time.Time     // when an earlier process or drain asked it to end, if one did
	gone  chan struct{} // then closed when a list says that it has
	spent bool          // it has had all its time, and the drain before gave it up

	over  chan struct{}     // closed when its stop is over, however
	after []<-chan struct{} // closed likewise for those that end before it
}

// stopPod stops containers of one pod, and tells the drain how each ended.
func (d *Drain) stopPod(ctx context.Context, phase int, pod key, containers []target, end time.Time) {
	ends := make([]containerEnd, len(containers))
	var wg sync.WaitGroup
	for i, c := range containers {
		wg.Go(func() {
			defer close(c.over)
			killed, err := d.stopInTurn(ctx, pod, c, end)
			ends[i] = containerEnd{id: c.ID, killed: killed, err: err}
		})
	}
	wg.Wait()
	d.tell(result{phase: phase, pod: pod, ends: ends})
}

func (d *Drain) tell(r result) {
	select {
	case d.results <- r:
	case <-d.over:
	}
}

// stopInTurn stops one container once those have stopped that need it. Their stops have
// ends, so that it comes to its turn: what it leaves of the phase is for those that it
// needs itself.
func (d *Drain) stopInTurn(ctx context.Context, pod key, c target, end time.Time) (killed bool, err error) {
	end = end.Add(-c.Rest)
	for _, other := range c.after {
		select {
		case <-other:
		case <-d.cancelled:
			return false, fmt.Errorf("stop container %q: the shutdown was cancelled", c.Name)
		case <-ctx.Done():
			return false, fmt.Errorf("stop container %q: %w", c.Name, context.Cause(ctx))
		}
	}
	if len(c.after) > 0 && c.gone == nil && !c.spent {
		if least := min(c.Own, d.slack); time.Until(end) < least { // nobody is killed unasked for others' sake
			end = time.Now().Add(least)
		}
		d.tell(result{pod: pod, asked: c.ID, at: time.Now()})
	}
	return d.stopContainer(ctx, c, end)
}

// stopContainer stops one container by the end of its phase, trying again as
// long as there is time: a runtime that restarts is back soon. It tells whether it was
// killed, which the runtime says of one of a unit: of others, whether the grace ran out.
func (d *Drain) stopContainer(ctx context.Context, c target, end time.Time) (killed bool, err error) {
	if c.spent {
		end = time.Now() // one more attempt to kill it, and no second period
	}
	ctx, cancel := context.WithDeadline(ctx, end.Add(d.slack))
	defer cancel()
	began, own := time.Now(), c.Own
	if c.gone != nil {
		if d.awaitEnd(ctx, c, end) {
			return false, nil
		}
		if d.isCancelled() {
			return false, fmt.Errorf("stop container %q: the shutdown was cancelled", c.Name)
		}
		own = 0
	}
	grace := d.within(own, end)
	first := grace
	asked := c.gone != nil || c.spent // by an earlier process, and is killed now
	for pause := retryPause; ; pause = min(2*pause, time.Second) {
		made := time.Now()
		got, err := d.ask(ctx, func(ctx context.Context) error { return d.options.Roster.StopContainer(ctx, c.Container, grace) })
		switch {
		case errors.Is(err, runtime.ErrKilled):
			return true, nil
		case err == nil:
			return c.Unit == "" && time.Since(began) >= first, nil
		case errors.Is(err, runtime.ErrUnsupported):
			return false, stopError(ctx, c.Name, err)
		}
		// Before the runtime went away; one that is only slow may not have come to it.
		lost := errors.Is(err, runtime.ErrLost) || time.Since(made) >= askRoom && !errors.Is(err, context.DeadlineExceeded)
		asked = asked || got || lost
		Sleep(ctx, pause)
		switch {
		case Closed(d.leaving) && !asked:
			return false, errUnasked
		case ctx.Err() != nil || d.isCancelled():
			return false, stopError(ctx, c.Name, err)
		}
		if !asked && time.Since(made) < max(grace, pause+retryPause) { // its time has not begun
			began = time.Now()
		}
		grace = d.within(own-time.Since(began), end)
		if !asked {
			first = grace
		}
	}
}

// errUnasked is found where the process ends before a container was asked to: no call was
// made, or all were refused.
var errUnasked = errors.New("not asked to end")

// ask makes a call that asks a container to end. It tells of one that was given up, and that
// the runtime has got. When the process ends it gives its calls up, but none within askRoom:
// the next process does not make them again.
func (d *Drain) ask(ctx context.Context, stop func(context.Context) error) (got bool, err error) {
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	began := time.Now()
	call, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(nil)
	if deadline, ok := ctx.Deadline(); ok {
		var late context.CancelFunc
		call, late = context.WithDeadline(call, deadline)
		defer late()
	}
	defer context.AfterFunc(ctx, func() {
		if Closed(d.leaving) {
			Sleep(call, time.Until(began.Add(askRoom)))
		}
		end(context.Cause(ctx))
	})()
	err = Bounded(call, func() error { return stop(call) })
	return call.Err() != nil, err
}

// stopError says what was tried where the runtime did not get to say it.
func stopError(ctx context.Context, name string, err error) error {
	if err == context.Cause(ctx) {
		return fmt.Errorf("stop container %q: %w", name, err)
	}
	return err
}

// within is the smaller of own and what is left until end. Runtimes that count
// in whole seconds round up, so what is left is given in whole seconds, and not
// more of them than a call may overrun its phase by.
func (d *Drain) within(own time.Duration, end time.Time) time.Duration {
	left := time.Until(end)
	if left > time.Second {
		if rounded := left.Round(time.Second); rounded-left < d.slack/2 {
			left = rounded
		} else {
			left = left.Truncate(time.Second)
		}
	}
	return max(0, min(own, left))
}

// awaitEnd waits out what is left of the grace that an earlier process gave.
func (d *Drain) awaitEnd(ctx context.Context, c target, end time.Time) bool {
	until := c.asked.Add(c.Own)
	if until.After(end) {
		until = end
	}
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-c.gone:
		return true
	case <-timer.C:
	case <-d.cancelled:
	case <-ctx.Done():
	}
	return false
}

func (d *Drain) isCancelled() bool { return Closed(d.cancelled) }
