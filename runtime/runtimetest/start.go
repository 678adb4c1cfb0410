package runtimetest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"hostler.io/hostler/runtime"
)

// StartContainer starts a container of a pod that is not a sandbox.
func (f *Fake) StartContainer(ctx context.Context, c runtime.Container) error {
	_, finish, err := f.begin(ctx, StartContainer, c.ID, 0)
	if err == nil {
		err = f.startContainer(c.ID)
	}
	return finish(err)
}

func (f *Fake) startContainer(id string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.container(id)
	switch {
	case !f.opts.NoSandboxes:
		return fmt.Errorf("%w: containers run once", runtime.ErrUnsupported)
	case c == nil:
		return errors.New("no such container")
	case c.State == runtime.Running:
		return nil
	}
	c.began, c.dying, c.ended = time.Now(), nil, make(chan struct{})
	c.State, c.StartedAt, c.FinishedAt, c.ExitCode = runtime.Running, c.latestRun(), time.Time{}, 0
	f.publish(runtime.Event{Type: runtime.ContainerStarted, ContainerID: id})
	return nil
}

// latestRun returns the start of the latest run, or zero if Restart is unknown, as in CRI, whose
// lists do not have it.
func (c *container) latestRun() time.Time {
	if c.Restart == runtime.RestartUnknown {
		return time.Time{}
	}
	return c.began
}
