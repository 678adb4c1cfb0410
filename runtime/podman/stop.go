package podman

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/docker/engine"
	"hostler.io/hostler/runtime/local"
)

// StopContainer has Podman send the container's own stop signal, and kills it after grace.
// Podman takes either as a person's stop, so that no restart policy starts the container
// again. A container of a systemd unit is stopped by stopping that, which systemd would
// start again otherwise: how it is sent the stop signal is the unit's own affair, and it is killed
// after grace all the same, which counts from when the unit begins to stop, as does the
// time-out of that stop.
func (r *Runtime) StopContainer(ctx context.Context, c runtime.Container, grace time.Duration) error {
	what := local.Named("stop container", c.Name, c.ID)
	if c.ID == "" {
		return fmt.Errorf("%s: no ID given", what)
	}
	r.changes.note()
	defer r.changes.note()
	began := time.Now()
	unit, err := r.stopUnit(ctx, what, c.ID, unitOf(c.Labels), c.PodID)
	if err != nil {
		return err
	}
	if grace > 0 {
		if unit != "" {
			stop := local.UnitStop{Units: r.units, Name: unit, Query: r.timeouts.Query, Log: r.log}
			if began, err = stop.AwaitTurn(ctx, what, began); err != nil {
				return err
			}
		}
		asked := time.Now() // it has heard nothing before
		var code int
		ended, err := engine.Within(ctx, what, asked, grace, func(ctx context.Context) (err error) {
			if unit != "" {
				code, err = r.awaitUnit(ctx, what, c.ID, grace)
				return err
			}
			if known, _ := r.facts.get(c.ID); known.removed {
				return r.terminateRemoved(ctx, what, c.ID, grace)
			}
			return r.terminate(ctx, what, c.ID, grace)
		})
		timedOut := c.UnitGrace != nil && time.Since(began) >= *c.UnitGrace
		if ended && err == nil && unit != "" && (timedOut || code == exitKilled) {
			return killed(what)
		}
		if ended || err != nil {
			return err
		}
	}
	if unit == "" && c.Unit == "" {
		return r.kill(ctx, what, c.ID, r.timeouts.StopMargin)
	}
	if running, _, err := r.running(ctx, what, c.ID); !running && engine.Gone(err) == nil { // it was quicker
		return nil
	}
	if err := r.kill(ctx, what, c.ID, r.timeouts.StopMargin); err != nil {
		return err
	}
	return killed(what)
}

// killed is what StopContainer says of a container of a unit that was killed.
func killed(what string) error { return fmt.Errorf("%s: %w", what, runtime.ErrKilled) }

// kill ends a container with SIGKILL. If Podman's service ends meanwhile, it is tried again for as long
// as timeout. Podman has no class for the error that a container does not run.
func (r *Runtime) kill(ctx context.Context, what, id string, timeout time.Duration) error {
	soon, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var err error
	for {
		err = engine.Stopping{Conn: r.conn, AwaitEnd: r.awaitEnd, Margin: r.timeouts.StopMargin}.Kill(ctx, what, id, timeout)
		if err == nil || errors.Is(err, runtime.ErrNotRunning) {
			return err
		}
		if !errors.Is(err, runtime.ErrUnavailable) {
			break
		}
		if !engine.AwaitAgain(soon) {
			return err
		}
	}
	if running, _, asked := r.running(ctx, what, id); !running && engine.Gone(asked) == nil {
		return nil
	}
	return err
}

// never is longer than any grace, in seconds, and no overflow in Podman.
const never = 1 << 31

// terminate has Podman stop a container, without ever killing it, and waits until it has
// ended. A mere signal is no stop: Podman 4.3 forgets that somebody has sent one, and its
// restart policy has the container run again.
func (r *Runtime) terminate(ctx context.Context, what, id string, grace time.Duration) error {
	request := engine.Request{Verb: http.MethodPost, Path: api + "/containers/" + id + "/stop", Query: url.Values{"timeout": {strconv.Itoa(never)}}}
	signalled := false
	for {
		err := r.conn.Ask(ctx, "StopContainer", what, grace+r.timeouts.StopMargin, request, nil)
		if err == nil || ctx.Err() != nil || errors.Is(err, engine.ErrNotFound) {
			return err
		}
		broke := errors.Is(err, runtime.ErrUnavailable)
		if errors.Is(err, runtime.ErrNotRunning) || broke && !engine.AwaitAgain(ctx) {
			return err
		}
		now, asked := r.inspect(ctx, what, id)
		switch {
		case errors.Is(asked, engine.ErrNotFound): // it is removed, which a stop reports in other words
			return asked
		case asked == nil && now.State.Status == statePaused: // it hears nothing
			unresumed := r.resume(ctx, what, id)
			if unresumed == nil && signalled {
				return r.awaitEndOf(ctx, what, id, grace)
			}
			if unresumed == nil {
				continue
			}
			if !signalled && !errors.Is(unresumed, runtime.ErrUnavailable) {
				signalled = r.queryPaused(ctx, what, id)
			}
			if !engine.AwaitAgain(ctx) {
				return err
			}
		case asked == nil && now.State.Status == stateStopping:
			// To some programs a second signal is an order to drop everything. Podman says
			// that a container is stopping before it sends the first.
			return r.awaitEndOf(ctx, what, id, grace)
		case !broke:
			return err
		case asked != nil && !errors.Is(asked, runtime.ErrUnavailable):
			return asked
		}
	}
}

// terminateRemoved is terminate of a container that Podman removes when it has ended: who already
// waits for its end then learns how it ended.
func (r *Runtime) terminateRemoved(ctx context.Context, what, id string, grace time.Duration) error {
	if running, _, err := r.running(ctx, what, id); err != nil || !running {
		return err
	}
	asked, waited := make(chan struct{}), make(chan struct{})
	first := sync.OnceFunc(func() { close(asked) })
	waiting := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { first() }})
	go func() {
		defer close(waited)
		if _, err := r.awaitStopped(waiting, what, id, grace+r.timeouts.StopMargin); err != nil {
			r.log.Debug("cannot read from Podman how a container exited", "id", id, "error", err)
		}
	}()
	select {
	case <-asked:
	case <-waited:
	}
	if err := engine.Gone(r.terminate(ctx, what, id, grace)); err != nil {
		return err
	}
	select {
	case <-waited:
	case <-time.After(exitMargin):
	}
	return nil
}

// exitMargin is how long Podman may take to return how a container has ended.
const exitMargin = time.Second

// queryPaused sends the stop signal to a container that Podman takes for paused after it failed
// to resume it, and reports whether it did: one that died in the middle of resuming it takes it
// for paused from then on, and neither resumes nor stops it, but passes signals on.
func (r *Runtime) queryPaused(ctx context.Context, what, id string) bool {
	now, err := r.inspect(ctx, what, id)
	if err != nil || now.State.Status != statePaused { // another client has resumed it
		return false
	}
	request := engine.Request{Verb: http.MethodPost, Path: api + "/containers/" + id + "/kill", Query: url.Values{"signal": {now.stopSignal()}}}
	return r.conn.Ask(ctx, "SignalContainer", what, r.timeouts.StopMargin, request, nil) == nil
}

// resume has a container continue that somebody has paused.
func (r *Runtime) resume(ctx context.Context, what, id string) error {
	return r.conn.Ask(ctx, "ResumeContainer", what, r.timeouts.StopMargin, engine.Request{Verb: http.MethodPost, Path: api + "/containers/" + id + "/unpause"}, nil)
}

// awaitEndOf is awaitEnd for a container that was sent the stop signal. It continues if Podman's
// service exits and starts again.
func (r *Runtime) awaitEndOf(ctx context.Context, what, id string, grace time.Duration) error {
	for {
		err := r.awaitEnd(ctx, what, id, grace+r.timeouts.StopMargin)
		if !errors.Is(err, runtime.ErrUnavailable) || errors.Is(err, runtime.ErrNotRunning) || !engine.AwaitAgain(ctx) {
			return err
		}
	}
}

// exitKilled is the exit code of what SIGKILL has ended.
const exitKilled = 128 + int(unix.SIGKILL)

// awaitUnit is awaitExit of what its unit ends, which continues whatever Podman says meanwhile: it
// complains where the container's monitor is killed as well.
func (r *Runtime) awaitUnit(ctx context.Context, what, id string, grace time.Duration) (code int, err error) {
	for {
		code, err = r.awaitExit(ctx, what, id, grace+r.timeouts.StopMargin)
		if errors.Is(err, runtime.ErrNotRunning) {
			if known, _ := r.facts.get(id); !r.monitors(known.monitor, id) { // it ends with its container
				return 0, nil
			}
		}
		if err = engine.Gone(err); err == nil || !engine.AwaitAgain(ctx) {
			return code, err
		}
	}
}

// running asks whether a container runs, and since when.
func (r *Runtime) running(ctx context.Context, what, id string) (running bool, since time.Time, err error) {
	now, err := r.inspect(ctx, what, id)
	return state(now.State.Status) == runtime.Running, now.State.StartedAt, err
}

// awaitEnd waits until a container does not run.
func (r *Runtime) awaitEnd(ctx context.Context, what, id string, timeout time.Duration) error {
	_, err := r.awaitExit(ctx, what, id, timeout)
	return err
}

// awaitExit is awaitEnd, and returns the exit code if Podman reports it. It asks Podman's own
// API: behind Docker's a Podman 4 waits by asking itself without a pause.
func (r *Runtime) awaitExit(ctx context.Context, what, id string, timeout time.Duration) (code int, err error) {
	if running, _, err := r.running(ctx, what, id); err != nil || !running {
		return 0, err // what was never started would be waited for in vain
	}
	return r.awaitStopped(ctx, what, id, timeout)
}

// awaitStopped is awaitExit of a container that runs.
func (r *Runtime) awaitStopped(ctx context.Context, what, id string, timeout time.Duration) (code int, err error) {
	request := engine.Request{Verb: http.MethodPost, Path: api + "/containers/" + id + "/wait", Query: url.Values{"condition": {"stopped", "exited"}}}
	waited := r.conn.Ask(ctx, "WaitContainer", what, timeout, request, &code)
	if waited == nil && code >= 0 { // -1: Podman did not see the end
		runtime.ReportExit(ctx, int32(code))
	}
	running, since, err := r.running(ctx, what, id)
	switch {
	case waited != nil && (err != nil || running): // else its monitor was killed, and the wait ends with a complaint
		return 0, waited
	case err == nil && running:
		return 0, fmt.Errorf("%s: it was started again at %s", what, since.Format(time.RFC3339))
	}
	return code, err
}

// StopPod kills what still runs of the containers that p has, and that which holds a pod
// of Podman's together, with its network. One that joined the pod since has had no grace
// yet, and is none of them.
func (r *Runtime) StopPod(ctx context.Context, p runtime.Pod) error {
	what := local.Named("stop pod", p.Name, p.ID)
	if p.ID == "" {
		return fmt.Errorf("%s: no ID given", what)
	}
	r.changes.note()
	defer r.changes.note()
	ctx, cancel := context.WithTimeout(ctx, r.timeouts.Teardown)
	defer cancel()
	list, err := r.list(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	list = slices.DeleteFunc(list, func(c container) bool {
		known := c.IsInfra || slices.ContainsFunc(p.Containers, func(known runtime.Container) bool { return known.ID == c.ID })
		return !known || c.podID() != p.ID || state(c.State) != runtime.Running
	})
	var kills sync.WaitGroup
	errs := make([]error, len(list))
	for i := range list {
		c := &list[i]
		kills.Go(func() { // all at once: one may never end
			errs[i] = r.takeDown(ctx, what+": "+local.Named("container", c.name(), c.ID), p, c)
		})
	}
	kills.Wait()
	return errors.Join(errs...)
}

// unitMargin is how long the unit of a pod may take to end what holds the pod together, before
// that is killed: the unit would have failed then.
const unitMargin = 10 * time.Second

// takeDown kills a container of a pod whose time is over; what holds the pod together only after
// half of the time that there is, if its unit does not end it.
func (r *Runtime) takeDown(ctx context.Context, what string, p runtime.Pod, c *container) error {
	asked, margin := time.Now(), unitMargin
	if deadline, bounded := ctx.Deadline(); bounded {
		margin = min(margin, time.Until(deadline)/2)
	}
	stops, err := r.stopUnit(ctx, what, c.ID, unitOf(c.Labels), p.ID)
	if err != nil {
		return err
	}
	if stops != "" && c.IsInfra {
		ended, err := engine.Within(ctx, what, asked, margin, func(ctx context.Context) error { return r.awaitEndOf(ctx, what, c.ID, margin) })
		if ended || err != nil {
			return err
		}
	}
	return r.kill(ctx, what, c.ID, r.timeouts.Teardown)
}
