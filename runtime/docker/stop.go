package docker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/docker/compose"
	"hostler.io/hostler/runtime/docker/engine"
	"hostler.io/hostler/runtime/local"
)

// StopContainer sends the container's own stop signal, and kills it after grace. It does not use
// Docker's stop, which would continue, and kill, even if the caller cancels. After either signal,
// Docker counts the container as stopped by a person, so no restart policy starts it before dockerd
// or the host restarts. A systemd unit that runs the container through a client would start it
// again, so the unit is stopped, too.
func (r *Runtime) StopContainer(ctx context.Context, c runtime.Container, grace time.Duration) error {
	what := local.Named("stop container", c.Name, c.ID)
	if c.ID == "" {
		return fmt.Errorf("%s: no ID given", what)
	}
	if unit, client := r.unitOf(c.ID); unit != "" {
		return r.stopOfUnit(ctx, what, c, grace, client)
	}
	_, err := r.stop(ctx, what, c, grace)
	return err
}

// stop is StopContainer without the unit. It returns whether the container was killed.
func (r *Runtime) stop(ctx context.Context, what string, c runtime.Container, grace time.Duration) (killed bool, err error) {
	if grace > 0 {
		ended, err := r.terminate(ctx, what, c, grace)
		if ended || err != nil {
			return false, err
		}
	}
	return true, r.stopping().Kill(ctx, what, c.ID, r.timeouts.StopMargin)
}

func (r *Runtime) stopping() engine.Stopping {
	return engine.Stopping{Conn: r.conn, AwaitEnd: r.awaitEnd, Margin: r.timeouts.StopMargin}
}

// terminate sends a container its stop signal, and reports whether it ended within its grace.
func (r *Runtime) terminate(ctx context.Context, what string, c runtime.Container, grace time.Duration) (ended bool, err error) {
	asked := time.Now()
	signal, err := r.stopSignal(ctx, c)
	if err == nil {
		err = r.stopping().Send(ctx, what, c.ID, signal)
	}
	switch {
	case errors.Is(err, engine.ErrNotFound):
		return true, nil
	case err != nil:
		return false, err
	}
	return engine.Within(ctx, what, asked, grace, func(ctx context.Context) error {
		return r.awaitEndOf(ctx, what, c, signal, asked, grace+r.timeouts.StopMargin)
	})
}

// awaitEndOf is awaitEnd for a container that was sent a signal. It continues if dockerd stops
// meanwhile and restarts. It sends the signal again only to a process that was started since: some
// programs exit at once on a second signal.
func (r *Runtime) awaitEndOf(ctx context.Context, what string, c runtime.Container, signal string, sent time.Time, timeout time.Duration) error {
	for {
		err := r.awaitEnd(ctx, what, c.ID, timeout)
		if !errors.Is(err, runtime.ErrUnavailable) || !engine.AwaitAgain(ctx) {
			return err
		}
		now, err := r.ask(ctx, what, c.ID)
		if err == nil && now.running && now.startedAt.After(sent) {
			sent = time.Now()
			err = r.stopping().Send(ctx, what, c.ID, signal)
		}
		if err != nil && !errors.Is(err, runtime.ErrUnavailable) {
			return err
		}
	}
}

// stopSignal returns the container's stop signal.
func (r *Runtime) stopSignal(ctx context.Context, c runtime.Container) (string, error) {
	r.facts.mu.Lock()
	f, known := r.facts.byID[c.ID]
	r.facts.mu.Unlock()
	if !known || f.created.IsZero() {
		var err error
		if f, err = r.ask(ctx, "get status of "+local.Named("container", c.Name, c.ID), c.ID); err != nil {
			return "", err
		}
	}
	if _, err := local.ParseStopSignal(f.stopSignal); err != nil {
		r.log.Warn("unknown stop signal of container, sent SIGTERM instead", "signal", f.stopSignal, "id", c.ID)
		return "SIGTERM", nil
	}
	return cmp.Or(f.stopSignal, "SIGTERM"), nil
}

// listLag bounds how long Docker's lists are behind its state, usually milliseconds: Docker makes
// them from a copy.
const listLag = 2 * time.Second

// awaitEnd waits until a container does not run and lists show that. It fails if the container was
// started again meanwhile.
func (r *Runtime) awaitEnd(ctx context.Context, what, id string, timeout time.Duration) error {
	if err := r.wait(ctx, what, id, timeout); err != nil {
		return err
	}
	until := time.Now().Add(listLag)
	for pause := time.Millisecond; ; pause *= 2 {
		list, err := engine.Get(ctx, r.conn, "ContainerList", what, r.timeouts.Query, func(ctx context.Context, c *client.Client) (client.ContainerListResult, error) {
			return c.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: client.Filters{}.Add("id", id)})
		})
		running := slices.ContainsFunc(list.Items, func(c container.Summary) bool { return state(c.State) == runtime.Running })
		switch {
		case err != nil || !running:
			return nil // it has ended, even if the list failed
		case time.Now().Add(pause).After(until):
			return r.checkEnded(ctx, what, id)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil
		}
	}
}

// checkEnded inspects a container that lists show as running.
func (r *Runtime) checkEnded(ctx context.Context, what, id string) error {
	now, err := r.ask(ctx, what, id)
	if err == nil && now.running {
		return fmt.Errorf("%s: it was started again at %s", what, now.startedAt.Format(time.RFC3339))
	}
	return err
}

func (r *Runtime) wait(ctx context.Context, what, id string, timeout time.Duration) error {
	return r.conn.Call(ctx, "ContainerWait", what, timeout, func(ctx context.Context, c *client.Client) error {
		wait := c.ContainerWait(ctx, id, client.ContainerWaitOptions{Condition: container.WaitConditionNotRunning})
		select {
		case end := <-wait.Result:
			if end.Error != nil {
				return errors.New(end.Error.Message)
			}
			runtime.ReportExit(ctx, int32(end.StatusCode))
			return nil
		case err := <-wait.Error:
			return err
		}
	})
}

// StopPod kills the running containers of p. It ignores containers that joined the project since,
// because they had no grace yet. There is nothing else to tear down: networks stay for the next
// start.
func (r *Runtime) StopPod(ctx context.Context, p runtime.Pod) error {
	what := local.Named("stop pod", p.Name, p.ID)
	if p.ID == "" {
		return fmt.Errorf("%s: no ID given", what)
	}
	ctx, cancel := context.WithTimeout(ctx, r.timeouts.Teardown)
	defer cancel()
	list, err := r.list(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	var kills sync.WaitGroup
	errs := make([]error, len(list))
	for i := range list {
		c := &list[i]
		known := slices.ContainsFunc(p.Containers, func(known runtime.Container) bool { return known.ID == c.ID })
		if known && compose.PodID(c.Labels, c.ID) == p.ID && !ofCRI(*c) && state(c.State) == runtime.Running {
			// In parallel, because Docker waits until each has ended, and one may never end.
			kills.Go(func() {
				errs[i] = r.stopping().Kill(ctx, what+": "+local.Named("container", name(c), c.ID), c.ID, r.timeouts.Teardown)
			})
		}
	}
	kills.Wait()
	return errors.Join(errs...)
}

// RemoveContainer removes a container that does not run; Docker refuses others. Its anonymous
// volumes stay.
func (r *Runtime) RemoveContainer(ctx context.Context, c runtime.Container) error {
	what := local.Named("remove container", c.Name, c.ID)
	if c.ID == "" {
		return fmt.Errorf("%s: no ID given", what)
	}
	return engine.Gone(r.conn.Call(ctx, "ContainerRemove", what, r.timeouts.Remove, func(ctx context.Context, cl *client.Client) error {
		_, err := cl.ContainerRemove(ctx, c.ID, client.ContainerRemoveOptions{})
		return err
	}))
}

// RemovePod returns runtime.ErrUnsupported: a pod disappears with its last container.
func (r *Runtime) RemovePod(_ context.Context, p runtime.Pod) error {
	return fmt.Errorf("%s: %w: it is removed with its containers", local.Named("remove pod", p.Name, p.ID), runtime.ErrUnsupported)
}
