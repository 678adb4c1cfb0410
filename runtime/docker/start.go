package docker

import (
	"context"
	"fmt"

	"github.com/moby/moby/client"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/local"
)

// StartContainer starts a container. Docker goes on with it, whatever became of who asked
// for it; for one that runs already it does nothing.
func (r *Runtime) StartContainer(ctx context.Context, c runtime.Container) error {
	what := local.Named("start container", c.Name, c.ID)
	if c.ID == "" {
		return fmt.Errorf("%s: no ID given", what)
	}
	defer r.facts.change(c.ID)
	return r.conn.Call(ctx, "ContainerStart", what, r.timeouts.Start, func(ctx context.Context, cl *client.Client) error {
		_, err := cl.ContainerStart(ctx, c.ID, client.ContainerStartOptions{})
		return err
	})
}
