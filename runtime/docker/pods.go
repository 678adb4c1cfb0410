package docker

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"hostler.io/hostler/internal/sanitize"
	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/docker/compose"
	"hostler.io/hostler/runtime/docker/engine"
)

// labelCRI is set by cri-dockerd: "podsandbox" or "container". An image may contain it.
const labelCRI = "io.kubernetes.docker.type"

// Pods lists Compose projects and single containers, by creation time. It takes one call, and one
// for each container that is new or has ended since the last list. It takes another one for the image
// of a container that a service seems to run by Compose. It omits containers of
// cri-dockerd, which cri-dockerd lists as pods.
func (r *Runtime) Pods(ctx context.Context) ([]runtime.Pod, error) {
	list, err := r.list(ctx)
	if err != nil {
		return nil, err
	}
	list = slices.DeleteFunc(list, ofCRI)
	known := r.facts.complete(ctx, r, list)
	units := r.queryUnits(ctx, known)
	containers := make([]runtime.Container, len(list))
	for i := range list {
		f := known[list[i].ID]
		containers[i] = r.container(&list[i], f)
		containers[i].Joins = find(list, list[i].ID, f.joins)
		containers[i].StopsBefore = append(slices.Clone(containers[i].Joins), find(list, list[i].ID, f.uses)...)
		setUnit(&containers[i], f, units)
	}
	return sanitize.Clean(compose.Pods(containers)), nil
}

// list lists all containers. It refuses a list in which a container has no ID, or the ID of another
// container. Otherwise a decision could apply to the wrong container.
func (r *Runtime) list(ctx context.Context) ([]container.Summary, error) {
	const what = "list containers"
	resp, err := engine.Get(ctx, r.conn, "ContainerList", what, r.timeouts.Query, func(ctx context.Context, c *client.Client) (client.ContainerListResult, error) {
		return c.ContainerList(ctx, client.ContainerListOptions{All: true})
	})
	if err != nil {
		return nil, err
	}
	seen := make(map[string]bool, len(resp.Items))
	for i := range resp.Items {
		switch id := resp.Items[i].ID; {
		case id == "":
			return nil, fmt.Errorf("%s: %w: a container has no ID", what, runtime.ErrInvalidAnswer)
		case seen[id]:
			return nil, fmt.Errorf("%s: %w: container %q is listed twice", what, runtime.ErrInvalidAnswer, id)
		default:
			seen[id] = true
		}
	}
	return resp.Items, nil
}

// shortID is the minimum length of an abbreviated ID.
const shortID = 12

// find returns the IDs of the containers with the IDs or names in meant, except own.
func find(list []container.Summary, own string, meant []string) (ids []string) {
	for _, other := range meant {
		i := slices.IndexFunc(list, func(c container.Summary) bool {
			return c.ID == other || slices.Contains(c.Names, "/"+other) || len(other) >= shortID && strings.HasPrefix(c.ID, other)
		})
		if i >= 0 && list[i].ID != own && !slices.Contains(ids, list[i].ID) {
			ids = append(ids, list[i].ID)
		}
	}
	return ids
}

// ofCRI reports whether cri-dockerd has created a container. It calls it
// k8s_CONTAINER_POD_NAMESPACE_UID_ATTEMPT. No image chooses a container's name.
func ofCRI(c container.Summary) bool {
	called := name(&c)
	return c.Labels[labelCRI] != "" && strings.HasPrefix(called, "k8s_") && strings.Count(called, "_") >= 5
}

func (r *Runtime) container(c *container.Summary, f fact) runtime.Container {
	converted := runtime.Container{
		Runtime:     r.name,
		ID:          c.ID,
		PodID:       compose.PodID(c.Labels, c.ID),
		Name:        name(c),
		Image:       c.Image,
		ImageID:     c.ImageID,
		State:       state(c.State),
		CreatedAt:   f.created,
		Restarting:  c.State == container.StateRestarting,
		Incomplete:  f.created.IsZero(),
		Restart:     f.restart,
		StopTimeout: f.stopTimeout,
		Labels:      c.Labels,
		Annotations: c.HostConfig.Annotations,
	}
	if converted.CreatedAt.IsZero() && c.Created > 0 {
		converted.CreatedAt = time.Unix(c.Created, 0)
	}
	switch {
	case converted.State == runtime.Exited && f.endFits(c):
		converted.StartedAt, converted.FinishedAt, converted.ExitCode = f.startedAt, f.finishedAt, f.exitCode
	case converted.State == runtime.Running && f.running:
		converted.StartedAt = f.startedAt
	}
	return converted
}

// name returns the name that `docker ps` shows. Names with a second slash are names of links.
func name(c *container.Summary) string {
	for _, n := range c.Names {
		if own := strings.TrimPrefix(n, "/"); !strings.Contains(own, "/") {
			return own
		}
	}
	return c.ID[:min(len(c.ID), 12)]
}

// state translates Docker's state. A container between two attempts of its restart policy counts as
// running, because it runs again unless somebody stops it.
func state(s container.ContainerState) runtime.ContainerState {
	switch s {
	case container.StateCreated:
		return runtime.Created
	case container.StateRunning, container.StatePaused, container.StateRestarting:
		return runtime.Running
	case container.StateExited, container.StateRemoving, container.StateDead:
		return runtime.Exited
	}
	return runtime.Unknown
}
