package drain

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/shutdown/plan"
)

// target is a container to stop.
type target struct {
	plan.PlannedContainer
	asked time.Time     // set if an earlier process asked it to end
	gone  chan struct{} // then closed when a list says that it has
	spent bool          // it has had all its time, and the drain before gave it up

	over  chan struct{}     // closed when its stop is over, however
	after []<-chan struct{} // closed likewise for those that end before it
}

// company is the stops of one pod's containers that are under way, also of those that came
// when others were being stopped already.
type company struct {
	mu   sync.Mutex
	n    int
	gone chan struct{} // closed when n is zero again
}

func (c *company) join() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == 0 {
		c.gone = make(chan struct{})
	}
	c.n++
}

func (c *company) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n--; c.n == 0 {
		close(c.gone)
	}
}

// left is closed when all that are under way now are over.
func (c *company) left() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.gone
}

// stopPod stops the containers, then the sandbox, and tells the drain of both. To tear
// a sandbox down kills what runs in it: it waits for the pod's other containers, too.
// Sandboxes go one at a time until the phase is calm: to tear one down costs a
// runtime as much as to stop a container, and those have a grace that runs.
func (d *Drain) stopPod(ctx context.Context, r result, pod runtime.Pod, containers []target, others *company, end time.Time, calm <-chan struct{}) {
	ends := make([]containerEnd, len(containers))
	var wg sync.WaitGroup
	for i, c := range containers {
		wg.Go(func() {
			defer close(c.over)
			killed, err := d.stopInTurn(ctx, r.pod, c, end)
			ends[i] = containerEnd{key: key{c.Runtime, c.ID}, pod: r.pod, name: c.Name, done: true, killed: killed, err: err}
		})
	}
	wg.Wait()
	others.leave()
	if ctx.Err() != nil { // nothing that failed now says anything of the containers
		r.handed, r.ends = true, slices.DeleteFunc(ends, func(e containerEnd) bool { return !errors.Is(e.err, errUnasked) })
		d.tell(r)
		return
	}
	failed := slices.ContainsFunc(ends, func(e containerEnd) bool { return e.err != nil })
	r.ends = ends
	if !failed || d.isCancelled() {
		d.tell(r)
	}
	if d.isCancelled() {
		return // what is half stopped is left to its owner
	}
	if r.keep {
		if failed {
			d.tell(r)
		}
		r.sandbox = true
		d.tell(r)
		return
	}
	select {
	case <-others.left():
	case <-d.cancelled:
		if failed {
			d.tell(r)
		}
		return
	case <-ctx.Done():
	}
	if !failed {
		select {
		case d.early <- struct{}{}:
			defer func() { <-d.early }()
		case <-calm:
		case <-ctx.Done():
		}
	}
	teardown, cancel := d.teardown(ctx, failed, end)
	defer cancel()
	err := Bounded(teardown, func() error { return d.options.Roster.StopPod(teardown, pod) })
	if err != nil {
		d.log.Warn("the sandbox of a pod stays behind", "pod", strings.TrimPrefix(pod.Namespace+"/"+pod.Name, "/"), "error", err)
	}
	for i := range ends { // a sandbox that is gone took along what still ran in it
		if err == nil && ends[i].err != nil {
			ends[i].killed, ends[i].err = true, nil
		}
	}
	if failed {
		d.tell(r)
	}
	r.sandbox = true
	d.tell(r)
}

// teardown bounds the end of a sandbox. Where containers failed to stop it is the
// last resort, by which the runtime kills them: that may take a moment, and once
// its phase is over as long as others run. A host so slow that kills take seconds
// has no use for one that is broken off.
func (d *Drain) teardown(ctx context.Context, failed bool, end time.Time) (context.Context, context.CancelFunc) {
	switch {
	case !failed:
		return context.WithTimeout(ctx, sandboxBound)
	case time.Now().Before(end): // the phase waits for it
		return context.WithTimeout(ctx, d.slack)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	late := time.AfterFunc(d.slack, func() {
		select {
		case <-d.last:
			cancel(context.DeadlineExceeded)
		case <-ctx.Done():
		}
	})
	return ctx, func() {
		late.Stop()
		cancel(nil)
	}
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
		d.tell(result{pod: pod, asked: key{c.Runtime, c.ID}, at: time.Now()})
	}
	return d.stopContainer(ctx, c, end)
}

// stopContainer stops one container by the end of its phase, trying again as
// long as there is time: a runtime that restarts is back soon. It tells whether
// the grace ran out.
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
		case err == nil:
			return time.Since(began) >= first, nil
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
		grace = d.within(own-time.Since(began), end)
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
