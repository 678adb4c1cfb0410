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
	"hostler.io/hostler/runtime/docker/engine"
	"hostler.io/hostler/runtime/local"
)

// signalKill is what nothing heeds.
const signalKill = "SIGKILL"

// StopContainer sends the container's own stop signal, and kills it after grace. It does
// so itself: Docker's stop goes on, and kills, whatever became of who asked for it.
// Docker takes either signal as a person's stop, so that no restart policy starts the
// container again before dockerd or the host does.
func (r *Runtime) StopContainer(ctx context.Context, c runtime.Container, grace time.Duration) error {
	what := local.Named("stop container", c.Name, c.ID)
	if c.ID == "" {
		return fmt.Errorf("%s: no ID given", what)
	}
	if grace > 0 {
		ended, err := r.terminate(ctx, what, c, grace)
		if ended || err != nil {
			return err
		}
	}
	return r.kill(ctx, what, c.ID, r.timeouts.StopMargin)
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
	err = gone(r.awaitEndOf(waiting, what, c, signal, asked, grace+r.timeouts.StopMargin))
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

// awaitEndOf is awaitEnd of a container that was sent a signal, and goes on when dockerd
// goes away meanwhile and comes back: to some programs a second signal is an order to
// drop everything. Only a process that was started since has not had it.
func (r *Runtime) awaitEndOf(ctx context.Context, what string, c runtime.Container, signal string, sent time.Time, timeout time.Duration) error {
	for {
		err := r.awaitEnd(ctx, what, c.ID, timeout)
		if !errors.Is(err, runtime.ErrUnavailable) {
			return err
		}
		select {
		case <-time.After(waitAgainAfter):
		case <-ctx.Done():
			return err
		}
		now, err := r.ask(ctx, what, c.ID)
		if err == nil && now.running && now.startedAt.After(sent) {
			sent = time.Now()
			err = r.signal(ctx, what, c.ID, signal)
		}
		if err != nil && !errors.Is(err, runtime.ErrUnavailable) {
			return err
		}
	}
}

// waitAgainAfter is the pause after a wait that broke.
const waitAgainAfter = 200 * time.Millisecond

var errGraceOver = errors.New("the grace is over")

// stopSignal is what the container is to be asked to end with.
func (r *Runtime) stopSignal(ctx context.Context, c runtime.Container) (string, error) {
	r.facts.mu.Lock()
	f, known := r.facts.byID[c.ID]
	r.facts.mu.Unlock()
	if !known || f.created.IsZero() {
		var err error
		if f, err = r.ask(ctx, "ask status of "+local.Named("container", c.Name, c.ID), c.ID); err != nil {
			return "", err
		}
	}
	return cmp.Or(f.stopSignal, "SIGTERM"), nil
}

// signal sends a signal to a container. One that does not run has no use for it. For a
// kill Docker waits itself, for ten seconds and longer where the process does not go, and
// then says so.
func (r *Runtime) signal(ctx context.Context, what, id, signal string) error {
	err := r.conn.Call(ctx, "ContainerKill", what, r.timeouts.StopMargin, func(ctx context.Context, c *client.Client) error {
		_, err := c.ContainerKill(ctx, id, client.ContainerKillOptions{Signal: signal})
		return err
	})
	if errors.Is(err, runtime.ErrInUse) { // 409: it is not running
		return nil
	}
	return err
}

// listLag is how long Docker's lists may be behind, which are made from a copy of what
// it knows: milliseconds.
const listLag = 2 * time.Second

// awaitEnd waits until a container does not run, and lists say so. It is an error where
// somebody has started it again meanwhile.
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
			return nil // it has ended, whatever becomes of the list
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

// checkEnded asks of a container that lists show as running.
func (r *Runtime) checkEnded(ctx context.Context, what, id string) error {
	now, err := r.ask(ctx, what, id)
	if err == nil && now.running {
		return fmt.Errorf("%s: it runs again, since %s", what, now.startedAt.Format(time.RFC3339))
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
			return nil
		case err := <-wait.Error:
			return err
		}
	})
}

// StopPod kills what still runs of the containers that p has. One that joined the project
// since has had no grace yet, and is none of them. There is nothing else to tear down:
// networks stay for the next start.
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
		if known && podID(c) == p.ID && !ofCRI(*c) && state(c.State) == runtime.Running {
			// All at once: Docker waits for the end of each, and one may never end.
			kills.Go(func() {
				errs[i] = r.kill(ctx, what+": "+local.Named("container", name(c), c.ID), c.ID, r.timeouts.Teardown)
			})
		}
	}
	kills.Wait()
	return errors.Join(errs...)
}

// kill ends a container, and waits until it has ended.
func (r *Runtime) kill(ctx context.Context, what, id string, timeout time.Duration) error {
	if err := r.signal(ctx, what, id, signalKill); err != nil {
		return gone(err)
	}
	return gone(r.awaitEnd(ctx, what, id, timeout))
}

// RemoveContainer removes a container that does not run; Docker itself refuses others.
// Its anonymous volumes stay.
func (r *Runtime) RemoveContainer(ctx context.Context, c runtime.Container) error {
	what := local.Named("remove container", c.Name, c.ID)
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
	return fmt.Errorf("%s: %w: it goes with its containers", local.Named("remove pod", p.Name, p.ID), runtime.ErrUnsupported)
}
