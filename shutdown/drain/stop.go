package drain

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/shutdown/plan"
)

// result is what the calls for one pod report to Run's goroutine.
type result struct {
	phase int // in which it was begun
	pod   key
	ends  []containerEnd // of the containers that were to be stopped
	torn  *teardown      // only this: what became of the sandbox
	asked string         // only this: the stop of a container that has waited for others is requested
	at    time.Time      // when

	service *serviceEnd // of no pod, but of a service that is stopped first
}

// containerEnd is how the stop of one container ended.
type containerEnd struct {
	id     string
	killed bool  // its grace period ran out
	err    error // it may still run
}

// teardown is what became of a sandbox.
type teardown struct {
	last bool // it was the last resort, to kill containers that failed to stop
	err  error
}

// calls are the calls to runtimes and services that a drain has under way, each in a goroutine of
// its own. They know nothing of the drain but what they are given, and report what became of
// them.
type calls struct {
	runtime Runtime
	log     *slog.Logger
	life    *life
	slack   time.Duration // by how much a call may overrun its phase
	results chan result

	ctx    context.Context // of all of them; set by begin
	giveUp func()          // ends it
	group  sync.WaitGroup
}

// begin makes calls possible until ctx ends. They report unit stops, if report is not nil.
func (c *calls) begin(ctx context.Context, report func(ctx context.Context, names []string)) {
	c.ctx, c.giveUp = context.WithCancel(ctx)
	if report != nil {
		c.ctx = runtime.WithUnitStops(c.ctx, report)
	}
}

// end has nobody take in results any more. The calls under way end by themselves.
func (c *calls) end() {
	close(c.life.over)
	go func() {
		c.group.Wait()
		c.giveUp()
		close(c.life.idle)
	}()
}

// target is a container to stop.
type target struct {
	plan.PlannedContainer
	asked time.Time     // when an earlier process or drain asked it to end, if one did
	gone  chan struct{} // then closed when a list says that it has
	spent bool          // it has had all its time, and the drain before gave it up

	over  chan struct{}     // closed when its stop is over, however
	after []<-chan struct{} // closed likewise for those that end before it
}

// stopPod stops containers of one pod, and reports how each ended.
func (c *calls) stopPod(phase int, pod key, containers []target, end time.Time) {
	ends := make([]containerEnd, len(containers))
	var wg sync.WaitGroup
	for i, t := range containers {
		wg.Go(func() {
			defer close(t.over)
			killed, err := c.stopInTurn(c.ctx, pod, t, end)
			ends[i] = containerEnd{id: t.ID, killed: killed, err: err}
		})
	}
	wg.Wait()
	c.report(result{phase: phase, pod: pod, ends: ends})
}

// report reports to Run's goroutine, unless that has ended.
func (c *calls) report(r result) {
	select {
	case c.results <- r:
	case <-c.life.over:
	}
}

// stopInTurn stops one container once those have stopped that need it. Their stops have
// ends, so that it comes to its turn: what it leaves of the phase is for those that it
// needs itself.
func (c *calls) stopInTurn(ctx context.Context, pod key, t target, end time.Time) (killed bool, err error) {
	end = end.Add(-t.Rest)
	for _, other := range t.after {
		select {
		case <-other:
		case <-c.life.cancelled:
			return false, fmt.Errorf("stop container %q: the shutdown was cancelled", t.Name)
		case <-ctx.Done():
			return false, fmt.Errorf("stop container %q: %w", t.Name, context.Cause(ctx))
		}
	}
	if len(t.after) > 0 && t.gone == nil && !t.spent {
		if least := min(t.Own, c.slack); time.Until(end) < least { // nobody is killed unasked for others' sake
			end = time.Now().Add(least)
		}
		c.report(result{pod: pod, asked: t.ID, at: time.Now()})
	}
	return c.stopContainer(ctx, t, end)
}

// stopContainer stops one container by the end of its phase, trying again as
// long as there is time: a runtime that restarts is back soon. It tells whether it was
// killed, which the runtime says of one of a unit: of others, whether the grace ran out.
func (c *calls) stopContainer(ctx context.Context, t target, end time.Time) (killed bool, err error) {
	if t.spent {
		end = time.Now() // one more attempt to kill it, and no second period
	}
	ctx, cancel := context.WithDeadline(ctx, end.Add(c.slack))
	defer cancel()
	began, own := time.Now(), t.Own
	if t.gone != nil {
		if c.awaitEnd(ctx, t, end) {
			return false, nil
		}
		if c.life.isCancelled() {
			return false, fmt.Errorf("stop container %q: the shutdown was cancelled", t.Name)
		}
		own = 0
	}
	grace := within(own, end, c.slack)
	first := grace
	asked := t.gone != nil || t.spent // by an earlier process, and is killed now
	for pause := retryPause; ; pause = min(2*pause, time.Second) {
		made := time.Now()
		got, err := c.ask(ctx, func(ctx context.Context) error { return c.runtime.StopContainer(ctx, t.Container, grace) })
		switch {
		case errors.Is(err, runtime.ErrKilled):
			return true, nil
		case err == nil:
			return t.Unit == "" && time.Since(began) >= first, nil
		case errors.Is(err, runtime.ErrUnsupported):
			return false, stopError(ctx, t.Name, err)
		}
		// Before the runtime went away; one that is only slow may not have come to it.
		lost := errors.Is(err, runtime.ErrLost) || time.Since(made) >= askRoom && !errors.Is(err, context.DeadlineExceeded)
		asked = asked || got || lost
		Sleep(ctx, pause)
		switch {
		case Closed(c.life.leaving) && !asked:
			return false, errUnasked
		case ctx.Err() != nil || c.life.isCancelled():
			return false, stopError(ctx, t.Name, err)
		}
		if !asked && time.Since(made) < max(grace, pause+retryPause) { // its time has not begun
			began = time.Now()
		}
		grace = within(own-time.Since(began), end, c.slack)
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
func (c *calls) ask(ctx context.Context, stop func(context.Context) error) (got bool, err error) {
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
		if Closed(c.life.leaving) {
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

// awaitEnd waits out what is left of the grace that an earlier process gave.
func (c *calls) awaitEnd(ctx context.Context, t target, end time.Time) bool {
	until := t.asked.Add(t.Own)
	if until.After(end) {
		until = end
	}
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-t.gone:
		return true
	case <-timer.C:
	case <-c.life.cancelled:
	case <-ctx.Done():
	}
	return false
}

// tearDown tears a sandbox down, and reports what became of that.
func (c *calls) tearDown(phase int, pod key, what runtime.Pod, end time.Time, last bool) {
	ctx, cancel := c.teardownBound(last, end)
	defer cancel()
	err := Bounded(ctx, func() error { return c.runtime.StopPod(ctx, what) })
	if err != nil {
		c.log.Warn("the sandbox of a pod stays behind", "pod", strings.TrimPrefix(what.Namespace+"/"+what.Name, "/"), "error", err)
	}
	c.report(result{phase: phase, pod: pod, torn: &teardown{last, err}})
}

// teardownBound bounds the end of a sandbox. Where containers failed to stop it is the
// last resort, by which the runtime kills them: that may take a moment, and once
// its phase is over as long as others run. A host so slow that kills take seconds
// has no use for one that is broken off.
func (c *calls) teardownBound(last bool, end time.Time) (context.Context, context.CancelFunc) {
	switch {
	case !last:
		return context.WithTimeout(c.ctx, sandboxBound)
	case time.Now().Before(end): // the phase waits for it
		return context.WithTimeout(c.ctx, c.slack)
	}
	ctx, cancel := context.WithCancelCause(c.ctx)
	late := time.AfterFunc(c.slack, func() {
		select {
		case <-c.life.last:
			cancel(context.DeadlineExceeded)
		case <-ctx.Done():
		}
	})
	return ctx, func() {
		late.Stop()
		cancel(nil)
	}
}
