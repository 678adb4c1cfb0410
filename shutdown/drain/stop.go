package drain

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"hostler.io/hostler/internal/bounded"
	"hostler.io/hostler/runtime"
	"hostler.io/hostler/shutdown/plan"
)

// result is what the calls for one pod report to Run's goroutine.
type result struct {
	phase     int // in which it was started
	pod       key
	ends      []containerEnd // of the containers that were to be stopped
	teardown  *teardown      // only this: what became of the sandbox
	requested *turn          // only this: the stop of a container that has waited for others is requested

	service *serviceEnd // of no pod, but of a service that is stopped first
	order   plan.Order  // of no pod: which services stop before units
}

// containerEnd is how the stop of one container ended.
type containerEnd struct {
	id     string
	killed bool   // its grace period ran out
	code   *int32 // its exit code; nil if its runtime has not reported that
	err    error  // it may still run
}

// turn is when the stop of a container is requested that has waited for others.
type turn struct {
	target
	at, end time.Time // end is that of its grace period, at the latest
}

// teardown is what became of a sandbox.
type teardown struct {
	last bool // it was the last resort, to kill containers that failed to stop
	err  error
}

// calls are the calls to runtimes and services that a drain has in progress, each in a goroutine of
// its own. They know nothing of the drain but what they are given, and report what became of
// them.
type calls struct {
	runtime *Roster
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

// end discards results from now on. The calls in progress end by themselves.
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
	requestedAt time.Time     // when an earlier process or drain requested its stop, if one did
	gone        chan struct{} // of one by an earlier process: closed when a list shows that it has ended
	spent       bool          // its grace period is over, and the drain before left it running

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
			var code atomic.Pointer[int32]
			ctx := runtime.WithExit(c.ctx, func(exit int32) { code.Store(&exit) })
			killed, err := c.stopInTurn(ctx, pod, t, end)
			ends[i] = containerEnd{id: t.ID, killed: killed, code: code.Load(), err: err}
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

// stopInTurn stops one container after the containers that need it have stopped. Each of their
// stops is bounded. It leaves time of the phase to the containers that it needs itself.
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
		if least := min(t.Own, c.slack); time.Until(end) < least { // it is not to be killed without a stop signal because others took long
			end = time.Now().Add(least)
		}
		c.report(result{pod: pod, requested: &turn{t, time.Now(), end}})
	}
	return c.stopContainer(ctx, t, end)
}

// stopContainer stops one container by the end of its phase. It retries as long as there is time: a
// runtime that restarts is back soon. It returns whether the container was killed: the runtime
// reports that of one of a unit; any other was if its grace period ran out.
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
		got, err := c.request(ctx, func(ctx context.Context) error { return c.runtime.StopContainer(ctx, t.Container, grace) })
		switch {
		case errors.Is(err, runtime.ErrKilled):
			return true, nil
		case err == nil:
			return t.Unit == "" && time.Since(began) >= first, nil
		case c.runtime.ended(t.ID, err):
			return false, nil
		case errors.Is(err, runtime.ErrUnsupported), errors.Is(err, runtime.ErrNotRunning):
			return false, stopError(ctx, t.Name, err)
		}
		// Before the runtime stopped; one that is only slow may not have come to it.
		lost := errors.Is(err, runtime.ErrLost) || time.Since(made) >= requestMargin && !errors.Is(err, context.DeadlineExceeded)
		asked = asked || got || lost
		_ = bounded.Sleep(ctx, pause)
		switch {
		case Closed(c.life.leaving) && !asked:
			return false, errUnrequested
		case ctx.Err() != nil || c.life.isCancelled():
			return false, stopError(ctx, t.Name, err)
		}
		if !asked && time.Since(made) < max(grace, pause+retryPause) { // its time has not started
			began = time.Now()
		}
		grace = within(own-time.Since(began), end, c.slack)
		if !asked {
			first = grace
		}
	}
}

// errUnrequested is the result if the process ends before the stop of a container was requested: no
// call was made, or all were refused.
var errUnrequested = errors.New("stop not requested")

// request makes a call that requests a stop. It returns whether the call was given up after the
// runtime got it. When the process ends it gives its calls up, but none within requestMargin: the
// next process does not make them again.
func (c *calls) request(ctx context.Context, stop func(context.Context) error) (got bool, err error) {
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
			_ = bounded.Sleep(call, time.Until(began.Add(requestMargin)))
		}
		end(context.Cause(ctx))
	})()
	err = bounded.Call(call, func() error { return stop(call) })
	return call.Err() != nil, err
}

// stopError adds what was tried to an error of the context.
func stopError(ctx context.Context, name string, err error) error {
	if err == context.Cause(ctx) {
		return fmt.Errorf("stop container %q: %w", name, err)
	}
	return err
}

// awaitEnd waits for the end of a container whose stop an earlier process has requested, as long as
// its grace period lasts.
func (c *calls) awaitEnd(ctx context.Context, t target, end time.Time) bool {
	until := t.requestedAt.Add(t.Own)
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
	err := bounded.Call(ctx, func() error { return c.runtime.StopPod(ctx, what) })
	if err != nil {
		c.log.Warn("cannot remove pod sandbox", "pod", strings.TrimPrefix(what.Namespace+"/"+what.Name, "/"), "error", err)
	}
	c.report(result{phase: phase, pod: pod, teardown: &teardown{last, err}})
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
