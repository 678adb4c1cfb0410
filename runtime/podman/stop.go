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

// StopContainer makes Podman send the container's own stop signal, and kills it after grace. After
// either signal, Podman counts the container as stopped by a person, so no restart policy starts it
// again.
//
// For a container of a systemd unit it stops the unit, because otherwise systemd would start the
// container again. The unit decides how the container gets its stop signal. The grace begins when
// the unit's stop begins, as does the unit's own stop timeout.
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
		asked := time.Now() // until now, it was sent nothing
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
	if running, _, err := r.running(ctx, what, c.ID); !running && engine.Gone(err) == nil { // it has ended meanwhile
		return nil
	}
	if err := r.kill(ctx, what, c.ID, r.timeouts.StopMargin); err != nil {
		return err
	}
	return killed(what)
}

// killed returns StopContainer's error for a killed container of a unit.
func killed(what string) error { return fmt.Errorf("%s: %w", what, runtime.ErrKilled) }

// kill sends SIGKILL to a container. If Podman's service exits meanwhile, it tries again until
// timeout. Podman has no error class for a container that does not run.
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

// never is a timeout in seconds: longer than any grace, and without overflow in Podman.
const never = 1 << 31

// terminate stops a container through Podman, without ever killing it, and waits until it has
// ended. A signal alone is not enough: Podman 4.3 forgets who sent it, and its restart policy
// starts the container again.
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
		for errors.Is(asked, runtime.ErrUnavailable) && engine.AwaitAgain(ctx) { // the signal may have been sent
			now, asked = r.inspect(ctx, what, id)
		}
		switch {
		case errors.Is(asked, engine.ErrNotFound): // removed; Podman's error for the stop does not say that
			return asked
		case asked == nil && now.State.Status == statePaused: // a paused container handles no signal
			unresumed := r.resume(ctx, what, id)
			if unresumed == nil && signalled {
				return r.awaitEndOf(ctx, what, id, grace)
			}
			if unresumed == nil {
				continue
			}
			if !signalled && !errors.Is(unresumed, runtime.ErrUnavailable) {
				signalled = r.signalPaused(ctx, what, id)
			}
			if !engine.AwaitAgain(ctx) {
				return err
			}
		case asked == nil && now.State.Status == stateStopping:
			// Some programs exit at once on a second signal. Podman sets the state to stopping
			// before it sends the first.
			return r.awaitEndOf(ctx, what, id, grace)
		case !broke:
			return err
		case asked != nil:
			return asked
		}
	}
}

// terminateRemoved is terminate for a container that Podman removes when it ends (--rm). Only a
// wait that began before returns the exit code.
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

// exitMargin is how long Podman may take to return the exit code.
const exitMargin = time.Second

// signalPaused sends the stop signal to a container that Podman calls paused although it cannot
// resume it, and reports whether it did. If Podman dies while it resumes a container, it calls it
// paused from then on. It neither resumes nor stops it, but passes signals on.
func (r *Runtime) signalPaused(ctx context.Context, what, id string) bool {
	now, err := r.inspect(ctx, what, id)
	if err != nil || now.State.Status != statePaused { // another client has resumed it
		return false
	}
	request := engine.Request{Verb: http.MethodPost, Path: api + "/containers/" + id + "/kill", Query: url.Values{"signal": {now.stopSignal()}}}
	return r.conn.Ask(ctx, "SignalContainer", what, r.timeouts.StopMargin, request, nil) == nil
}

// resume resumes a paused container.
func (r *Runtime) resume(ctx context.Context, what, id string) error {
	return r.conn.Ask(ctx, "ResumeContainer", what, r.timeouts.StopMargin, engine.Request{Verb: http.MethodPost, Path: api + "/containers/" + id + "/unpause"}, nil)
}

// awaitEndOf is awaitEnd for a container that was sent the stop signal. It continues if Podman's
// service exits and restarts.
func (r *Runtime) awaitEndOf(ctx context.Context, what, id string, grace time.Duration) error {
	for {
		err := r.awaitEnd(ctx, what, id, grace+r.timeouts.StopMargin)
		if !errors.Is(err, runtime.ErrUnavailable) || errors.Is(err, runtime.ErrNotRunning) || !engine.AwaitAgain(ctx) {
			return err
		}
	}
}

// exitKilled is the exit code after SIGKILL.
const exitKilled = 128 + int(unix.SIGKILL)

// awaitUnit is awaitExit for a container that its unit stops. It continues after errors of Podman,
// which returns one if the container's monitor is killed, too.
func (r *Runtime) awaitUnit(ctx context.Context, what, id string, grace time.Duration) (code int, err error) {
	for {
		code, err = r.awaitExit(ctx, what, id, grace+r.timeouts.StopMargin)
		if errors.Is(err, runtime.ErrNotRunning) {
			if known, _ := r.facts.get(id); !r.monitors(known.monitor, id) { // the monitor ends with its container
				return 0, nil
			}
		}
		if err = engine.Gone(err); err == nil || !engine.AwaitAgain(ctx) {
			return code, err
		}
	}
}

// running returns whether a container runs, and since when.
func (r *Runtime) running(ctx context.Context, what, id string) (running bool, since time.Time, err error) {
	now, err := r.inspect(ctx, what, id)
	return state(now.State.Status) == runtime.Running, now.State.StartedAt, err
}

// awaitEnd waits until a container does not run.
func (r *Runtime) awaitEnd(ctx context.Context, what, id string, timeout time.Duration) error {
	_, err := r.awaitExit(ctx, what, id, timeout)
	return err
}

// awaitExit is awaitEnd, and returns the exit code if Podman reports it. It uses Podman's own API,
// because a wait in Podman 4's Docker API polls without a pause.
func (r *Runtime) awaitExit(ctx context.Context, what, id string, timeout time.Duration) (code int, err error) {
	if running, _, err := r.running(ctx, what, id); err != nil || !running {
		return 0, err // a wait for a container that was never started would not end
	}
	return r.awaitStopped(ctx, what, id, timeout)
}

// awaitStopped is awaitExit for a running container.
func (r *Runtime) awaitStopped(ctx context.Context, what, id string, timeout time.Duration) (code int, err error) {
	request := engine.Request{Verb: http.MethodPost, Path: api + "/containers/" + id + "/wait", Query: url.Values{"condition": {"stopped", "exited"}}}
	waited := r.conn.Ask(ctx, "WaitContainer", what, timeout, request, &code)
	if waited == nil && code >= 0 { // -1: Podman did not see the end
		runtime.ReportExit(ctx, int32(code))
	}
	running, since, err := r.running(ctx, what, id)
	switch {
	case waited != nil && (err != nil || running): // else its monitor was killed, for which the wait returns an error
		return 0, waited
	case err == nil && running:
		return 0, fmt.Errorf("%s: it was started again at %s", what, since.Format(time.RFC3339))
	}
	return code, err
}

// StopPod kills the running containers of p, and the infra container of a Podman pod with its
// network. It ignores containers that joined the pod since, because they had no grace yet.
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
		kills.Go(func() { // in parallel, because one may never end
			errs[i] = r.takeDown(ctx, what+": "+local.Named("container", c.name(), c.ID), p, c)
		})
	}
	kills.Wait()
	return errors.Join(errs...)
}

// unitMargin is how long the unit of a pod may take to stop the infra container. If the infra
// container were killed earlier, the unit would fail.
const unitMargin = 10 * time.Second

// takeDown kills a container of a pod. It kills an infra container only if its unit does not stop
// it within unitMargin, or half of the remaining time.
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
