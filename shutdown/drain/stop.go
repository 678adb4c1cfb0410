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

// result is a message of the calls for one pod to Run's goroutine.
type result struct {
	phase     int // phase in which the call was started
	pod       key
	ends      []containerEnd // of the containers whose stop was started
	teardown  *teardown      // if set, the only content: result of a teardown
	requested *turn          // if set, the only content: the stop of a container that waited for others is now requested

	service *serviceEnd // without a pod: result of a service that is stopped first
	order   plan.Order  // without a pod: services that stop before units
}

// containerEnd is the result of the stop of one container.
type containerEnd struct {
	id     string
	killed bool   // its grace period was over
	code   *int32 // its exit code; nil if not reported
	err    error  // why it may still be running
}

// turn is when the stop of a container that waited for others is requested.
type turn struct {
	target
	at, end time.Time // end is the latest end of its grace period
}

// teardown is the result of a sandbox's teardown.
type teardown struct {
	last bool // it was the last resort, to kill containers that failed to stop
	err  error
}

// calls has the running calls to runtimes and services, each in its own goroutine. They access only
// their arguments, and send results.
type calls struct {
	runtime *Roster
	log     *slog.Logger
	life    *life
	store   func(ctx context.Context) error // Options.Store
	slack   time.Duration                   // how much longer than its phase a call may take
	last    time.Time                       // schedule.last
	results chan result

	ctx    context.Context // context of all calls; set by begin
	giveUp func()          // cancels ctx
	group  sync.WaitGroup

	unstored atomic.Pointer[error] // error of store or Options.UnitStops; nil if they have returned none
}

// begin allows calls until ctx ends. report, if not nil, is called before a unit stops.
func (c *calls) begin(ctx context.Context, report func(ctx context.Context, names []string) error) {
	c.ctx, c.giveUp = context.WithCancel(ctx)
	if report != nil {
		c.ctx = runtime.WithUnitStops(c.ctx, func(ctx context.Context, names []string) error { return c.failed(report(ctx, names)) })
	}
}

// end discards further results. Running calls end by themselves.
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
	requestedAt time.Time     // when an earlier process or drain requested its stop; zero if none did
	gone        chan struct{} // if an earlier process requested its stop: closed when a list shows its end
	spent       bool          // an earlier drain left it running after its grace period

	over  chan struct{}     // closed when its stop has ended, with any result
	after []<-chan struct{} // the over channels of the containers that stop before it
}

// stopPod stops containers of one pod, and reports the result of each.
func (c *calls) stopPod(phase int, pod key, containers []target, end time.Time) {
	ends := make([]containerEnd, len(containers))
	if err := c.stored(); err != nil {
		for i, t := range containers {
			ends[i] = containerEnd{id: t.ID, err: fmt.Errorf("stop container %q: cannot store it: %w", t.Name, err)}
			close(t.over)
		}
		c.report(result{phase: phase, pod: pod, ends: ends})
		return
	}
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

// stored waits until the stops that are about to be requested are on disk. If that fails, it cancels
// the drain.
func (c *calls) stored() error {
	if c.store == nil {
		return nil
	}
	return c.failed(c.store(c.ctx))
}

// failed cancels the drain if something could not be stored, and returns err.
func (c *calls) failed(err error) error {
	if err != nil && c.ctx.Err() == nil {
		c.unstored.CompareAndSwap(nil, &err)
		c.life.cancel()
	}
	return err
}

// report sends a result to Run's goroutine, unless that has ended.
func (c *calls) report(r result) {
	select {
	case c.results <- r:
	case <-c.life.over:
	}
}

// stopInTurn stops a container after those that need it. Each wait is bounded, so that time is left
// for the containers that it needs itself.
func (c *calls) stopInTurn(ctx context.Context, pod key, t target, end time.Time) (killed bool, err error) {
	end = end.Add(-t.Reserve)
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
		if least := min(t.Own, c.slack); time.Until(end) < least { // do not kill it without a stop signal only because others took long
			end = time.Now().Add(least)
		}
		c.report(result{pod: pod, requested: &turn{t, time.Now(), end}})
	}
	return c.stopContainer(ctx, t, end)
}

// stopContainer stops one container by the end of its phase. It retries while there is time,
// because the runtime may be restarting. It returns whether the container was killed. For a unit,
// the runtime reports that. Otherwise it was killed if its grace period ended.
func (c *calls) stopContainer(ctx context.Context, t target, end time.Time) (killed bool, err error) {
	if t.spent {
		end = time.Now() // one more attempt to kill it, without another grace period
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
	asked := t.gone != nil || t.spent // requested by an earlier process, so kill it now
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
		// The runtime may have sent the signal before it stopped. If it is only slow, it may not
		// have.
		lost := errors.Is(err, runtime.ErrLost) || time.Since(made) >= requestMargin && !errors.Is(err, context.DeadlineExceeded)
		asked = asked || got || lost
		_ = bounded.Sleep(ctx, pause)
		switch {
		case Closed(c.life.leaving) && !asked:
			return false, errUnrequested
		case ctx.Err() != nil || c.life.isCancelled():
			return false, stopError(ctx, t.Name, err)
		}
		// The grace period starts when the runtime answers. If it refuses, as for a stop
		// signal that does not exist, the container is killed at the end of its grace period.
		unsent := !asked && (errors.Is(err, runtime.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded))
		if unsent && time.Since(made) < max(grace, pause+retryPause) {
			began = time.Now()
		}
		grace = within(own-time.Since(began), end, c.slack)
		if unsent {
			first = grace
		}
	}
}

// errUnrequested is the result if the process ends before a stop request of a container was
// accepted.
var errUnrequested = errors.New("stop not requested")

// request requests a stop. It returns whether the call was abandoned after the runtime had received
// it. If the process is ending, it abandons the call, but only after requestMargin, so that the
// next process does not have to repeat it.
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

// stopError adds the operation to an error of the context.
func stopError(ctx context.Context, name string, err error) error {
	if err == context.Cause(ctx) {
		return fmt.Errorf("stop container %q: %w", name, err)
	}
	return err
}

// awaitEnd waits for a container that an earlier process stopped, until its grace period ends.
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

// tearDown tears down a sandbox, and reports the result.
func (c *calls) tearDown(phase int, pod key, what runtime.Pod, end time.Time, last bool) {
	ctx, cancel := c.teardownBound(last, end)
	defer cancel()
	err := bounded.Call(ctx, func() error { return c.runtime.StopPod(ctx, what) })
	if err != nil {
		c.log.Warn("cannot remove pod sandbox", "pod", strings.TrimPrefix(what.Namespace+"/"+what.Name, "/"), "error", err)
	}
	c.report(result{phase: phase, pod: pod, teardown: &teardown{last, err}})
}

// teardownBound bounds a teardown. If containers failed to stop, it is the last resort, in which
// the runtime kills them. After its phase, it may take as long as other stops are running, or up to
// sandboxBound of what later phases leave: on a very slow host, abandoning it gains nothing.
func (c *calls) teardownBound(last bool, end time.Time) (context.Context, context.CancelFunc) {
	switch {
	case !last:
		return context.WithTimeout(c.ctx, sandboxBound)
	case time.Now().Before(end): // the phase waits for it
		return context.WithTimeout(c.ctx, c.slack)
	}
	ctx, cancel := context.WithCancelCause(c.ctx)
	late := time.AfterFunc(max(c.slack, min(sandboxBound, time.Until(c.last))), func() {
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
