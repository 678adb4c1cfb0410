package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/moby/moby/client"

	"hostler.io/hostler/runtime"
)

// Stopping is how containers are stopped. The stop is implemented here: the daemon would continue
// its own stop, and kill, after the caller has cancelled.
type Stopping struct {
	Conn *Conn
	// AwaitEnd waits until a container does not run, and lists say so. It is an error if the
	// container was started again meanwhile.
	AwaitEnd func(ctx context.Context, what, id string, timeout time.Duration) error
	// Margin is how long a daemon may take for a signal.
	Margin time.Duration
}

// Gone turns the error that there is no such object into success: it is stopped, and
// removed.
func Gone(err error) error {
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

// Send sends a signal to a container. One that does not run has no use for it. For a kill
// daemons wait themselves, Docker for ten seconds and longer where the process does not
// go, and then says so.
func (s Stopping) Send(ctx context.Context, what, id, signal string) error {
	err := s.Conn.Call(ctx, "ContainerKill", what, s.Margin, func(ctx context.Context, c *client.Client) error {
		_, err := c.ContainerKill(ctx, id, client.ContainerKillOptions{Signal: signal})
		return err
	})
	if errors.Is(err, runtime.ErrInUse) { // 409: it is not running
		return nil
	}
	return err
}

// Kill ends a container by what nothing heeds, and waits until it has ended.
func (s Stopping) Kill(ctx context.Context, what, id string, timeout time.Duration) error {
	if err := s.Send(ctx, what, id, "SIGKILL"); err != nil {
		return Gone(err)
	}
	return Gone(s.AwaitEnd(ctx, what, id, timeout))
}

var errGraceOver = errors.New("grace period expired")

// Within waits for the end of a container that was sent the stop signal at that time, and reports
// whether it ended within the grace. If ctx ends before, the error is that of ctx.
func Within(ctx context.Context, what string, asked time.Time, grace time.Duration, await func(context.Context) error) (ended bool, err error) {
	waiting, cancel := context.WithTimeoutCause(ctx, grace-time.Since(asked), errGraceOver)
	defer cancel()
	err = Gone(await(waiting))
	switch {
	case err == nil:
		return true, nil
	case ctx.Err() != nil: // no fault of the daemon's, which knows nothing of a grace
		return false, fmt.Errorf("%s: %w after %v of its grace period of %v", what, context.Cause(ctx), time.Since(asked).Round(time.Millisecond), grace)
	case waiting.Err() != nil:
		return false, nil
	}
	return false, err
}

// AwaitAgain pauses after a wait that broke, and reports whether to continue.
func AwaitAgain(ctx context.Context) bool {
	select {
	case <-time.After(200 * time.Millisecond):
		return true
	case <-ctx.Done():
		return false
	}
}
