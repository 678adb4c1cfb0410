package docker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/docker/engine"
)

// signalKill is what nothing heeds.
const signalKill = "SIGKILL"

// StopContainer sends the container's own stop signal, and kills it after grace. It does
// so itself: Docker's stop goes on, and kills, whatever became of who asked for it.
// Docker takes either signal as a person's stop, so that no restart policy starts the
// container again before dockerd or the host does.
func (r *Runtime) StopContainer(ctx context.Context, c runtime.Container, grace time.Duration) error {
	what := named("stop container", c.Name, c.ID)
	if c.ID == "" {
		return fmt.Errorf("%s: no ID given", what)
	}
	if grace > 0 {
		ended, err := r.terminate(ctx, what, c, grace)
		if ended || err != nil {
			return err
		}
	}
	if err := r.signal(ctx, what, c.ID, signalKill); err != nil {
		return gone(err)
	}
	return gone(r.awaitEnd(ctx, what, c.ID, r.timeouts.StopMargin))
}

// gone turns the error that there is no such container into success: it is stopped, and
// removed.
func gone(err error) error {
	if errors.Is(err, engine.ErrNotFound) {
		return nil
	}
	return err
}

// terminate asks a container to end, and tells whether it has within its grace.
func (r *Runtime) terminate(ctx context.Context, what string, c runtime.Container, grace time.Duration) (ended bool, err error) {
	asked := time.Now()
	signal, err := r.stopSignal(ctx, c)
	if err == nil {
		err = r.signal(ctx, what, c.ID, signal)
	}
	switch {
	case errors.Is(err, engine.ErrNotFound):
		return true, nil
	case err != nil:
		return false, err
	}
	waiting, cancel := context.WithTimeoutCause(ctx, grace-time.Since(asked), errGraceOver)
	defer cancel()
	err = gone(r.awaitEnd(waiting, what, c.ID, grace+r.timeouts.StopMargin))
	switch {
	case err == nil:
		return true, nil
	case ctx.Err() != nil: // no fault of Docker's, who knows nothing of a grace
		return false, fmt.Errorf("%s: %w after %v of its grace of %v", what, context.Cause(ctx), time.Since(asked).Round(time.Millisecond), grace)
	case waiting.Err() != nil:
		return false, nil
	}
	return false, err
}

var errGraceOver = errors.New("the grace is over")

// stopSignal is what the container is to be asked to end with.
func (r *Runtime) stopSignal(ctx context.Context, c runtime.Container) (string, error) {
	r.facts.mu.Lock()
	f, known := r.facts.byID[c.ID]
	r.facts.mu.Unlock()
	if !known || f.created.IsZero() {
		var err error
		if f, err = r.inspect(ctx, c.ID, c.Name); err != nil {
			return "", err
		}
	}
	return cmp.Or(f.stopSignal, "SIGTERM"), nil
}

// signal sends a signal to a container. One that does not run has no use for it.
func (r *Runtime) signal(ctx context.Context, what, id, signal string) error {
	err := r.conn.Call(ctx, "ContainerKill", what, r.timeouts.Query, func(ctx context.Context, c *client.Client) error {
		_, err := c.ContainerKill(ctx, id, client.ContainerKillOptions{Signal: signal})
		return err
	})
	if errors.Is(err, runtime.ErrInUse) { // 409: it is not running
		return nil
	}
	return err
}

// listLag is how long Docker's lists may be behind, which are made from a copy of what
// it knows: milliseconds. A container that somebody starts again meanwhile runs on.
const listLag = 2 * time.Second

// awaitEnd waits until a container does not run, and lists say so.
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
		if err != nil || !running || time.Now().Add(pause).After(until) {
			return nil // it has ended, whatever becomes of the list
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil
		}
	}
}

func (r *Runtime) wait(ctx context.Context, what, id string, timeout time.Duration) error {
	return r.conn.Call(ctx, "ContainerWait", what, timeout, func(ctx context.Context, c *client.Client) error {
		wait := c.ContainerWait(ctx, id, client.ContainerWaitOptions{Condition: container.WaitConditionNotRunning})
		select {
		case <-wait.Result:
			return nil
		case err := <-wait.Error:
			return err
		}
	})
}

// StopPod kills what still runs of a project or of a lone container. There is nothing
// else to tear down: networks stay for the next start.
func (r *Runtime) StopPod(ctx context.Context, p runtime.Pod) error {
	what := named("stop pod", p.Name, p.ID)
	if p.ID == "" {
		return fmt.Errorf("%s: no ID given", what)
	}
	ctx, cancel := context.WithTimeout(ctx, r.timeouts.Teardown)
	defer cancel()
	list, err := r.list(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	var running []string
	for i := range list {
		if c := &list[i]; podID(c) == p.ID && !ofCRI(*c) && state(c.State) == runtime.Running {
			running = append(running, c.ID)
		}
	}
	// All are killed before any is waited for.
	for _, id := range running {
		if err := gone(r.signal(ctx, what, id, signalKill)); err != nil {
			return err
		}
	}
	for _, id := range running {
		if err := gone(r.awaitEnd(ctx, what, id, r.timeouts.Teardown)); err != nil {
			return err
		}
	}
	return nil
}

// RemoveContainer removes a container that does not run; Docker itself refuses others.
// Its anonymous volumes stay.
func (r *Runtime) RemoveContainer(ctx context.Context, c runtime.Container) error {
	what := named("remove container", c.Name, c.ID)
	if c.ID == "" {
		return fmt.Errorf("%s: no ID given", what)
	}
	return gone(r.conn.Call(ctx, "ContainerRemove", what, r.timeouts.Remove, func(ctx context.Context, cl *client.Client) error {
		_, err := cl.ContainerRemove(ctx, c.ID, client.ContainerRemoveOptions{})
		return err
	}))
}

// RemovePod is runtime.ErrUnsupported: a pod goes with the last of its containers.
func (r *Runtime) RemovePod(_ context.Context, p runtime.Pod) error {
	return fmt.Errorf("%s: %w: it goes with its containers", named("remove pod", p.Name, p.ID), runtime.ErrUnsupported)
}
