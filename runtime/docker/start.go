package docker

import (
	"context"
	"fmt"

	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/docker/engine"
	"hostler.io/hostler/runtime/local"
)

// StartContainer starts a container. Docker continues even if the caller cancels. If the container
// runs already, Docker does nothing.
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

// StartNeeds returns the folders that are bound into a container, its devices, and what its local
// volumes are mounted from.
func (r *Runtime) StartNeeds(ctx context.Context, c runtime.Container) (needs runtime.StartNeeds, err error) {
	what := "read dependencies of " + local.Named("container", c.Name, c.ID)
	resp, err := engine.Get(ctx, r.conn, "ContainerInspect", what, r.timeouts.Query, func(ctx context.Context, cl *client.Client) (client.ContainerInspectResult, error) {
		return cl.ContainerInspect(ctx, c.ID, client.ContainerInspectOptions{})
	})
	if err != nil {
		return needs, err
	}
	var anonymous local.Anonymous
	for _, m := range resp.Container.Mounts {
		if m.Type == mount.TypeBind {
			needs.Paths = append(needs.Paths, m.Source)
			continue
		}
		if m.Type != mount.TypeVolume || !anonymous.Inspect(m.Driver, m.Name) {
			continue
		}
		volume, err := engine.Get(ctx, r.conn, "VolumeInspect", what, r.timeouts.Query, func(ctx context.Context, cl *client.Client) (client.VolumeInspectResult, error) {
			return cl.VolumeInspect(ctx, m.Name, client.VolumeInspectOptions{})
		})
		if err != nil {
			return needs, err
		}
		needs.Paths = append(needs.Paths, local.VolumePaths(volume.Volume.Driver, volume.Volume.Options)...)
	}
	if h := resp.Container.HostConfig; h != nil {
		for _, d := range h.Devices {
			needs.Paths = append(needs.Paths, d.PathOnHost)
		}
	}
	return needs, nil
}
