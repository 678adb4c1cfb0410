package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/moby/moby/client"

	"hostler.io/hostler/runtime"
)

// Stopping stops containers by signals. It does not use the daemon's stop, which would continue and
// kill the container after the caller has cancelled.
type Stopping struct {
	Conn *Conn
	// AwaitEnd waits until a container does not run and lists show that. It fails if the container
	// was started again meanwhile.
	AwaitEnd func(ctx context.Context, what, id string, timeout time.Duration) error
	// Margin is how long a daemon may take to send a signal.
	Margin time.Duration
}

// Gone returns nil for ErrNotFound: the container is stopped and removed.
func Gone(err error) error {
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

// Send sends a signal to a container. It ignores a container that does not run. After SIGKILL,
// daemons themselves wait, Docker at least ten seconds if the process does not end, and then return
// an error.
func (s Stopping) Send(ctx context.Context, what, id, signal string) error {
	err := s.Conn.Call(ctx, "ContainerKill", what, s.Margin, func(ctx context.Context, c *client.Client) error {
		_, err := c.ContainerKill(ctx, id, client.ContainerKillOptions{Signal: signal})
		return err
	})
	if errors.Is(err, runtime.ErrInUse) { // 409: not running
		return nil
	}
	return err
}

// Kill sends SIGKILL to a container, and waits until it has ended.
func (s Stopping) Kill(ctx context.Context, what, id string, timeout time.Duration) error {
	if err := s.Send(ctx, what, id, "SIGKILL"); err != nil {
		return Gone(err)
	}
	return Gone(s.AwaitEnd(ctx, what, id, timeout))
}

var errGraceOver = errors.New("grace period expired")

// Within waits for the end of a container whose stop was requested at asked, and reports whether it
// ended within the grace. If ctx ends first, the error is that of ctx.
func Within(ctx context.Context, what string, asked time.Time, grace time.Duration, await func(context.Context) error) (ended bool, err error) {
	waiting, cancel := context.WithTimeoutCause(ctx, grace-time.Since(asked), errGraceOver)
	defer cancel()
	err = Gone(await(waiting))
	switch {
	case err == nil:
		return true, nil
	case ctx.Err() != nil: // not an error of the daemon, which does not know the grace
		return false, fmt.Errorf("%s: %w after %v of its grace period of %v", what, context.Cause(ctx), time.Since(asked).Round(time.Millisecond), grace)
	case waiting.Err() != nil:
		return false, nil
	}
	return false, err
}

// AwaitAgain pauses after a wait that failed, and reports whether to continue.
func AwaitAgain(ctx context.Context) bool {
	select {
	case <-time.After(200 * time.Millisecond):
		return true
	case <-ctx.Done():
		return false
	}
}
