package podman

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"time"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/docker/compose"
)

// container is a container in Podman's list.
type container struct {
	ID             string `json:"Id"`
	Names          []string
	Image, ImageID string
	IsInfra        bool
	Pod            string
	State          string
	Created        time.Time
	Pid            int
	StartedAt      int64
	ExitedAt       int64 // of an earlier run, if Podman has not seen the end of the latest
	ExitCode       int32
	Labels         map[string]string
}

const (
	// stateStorage is the state of containers of other tools, such as Buildah, in Podman's storage.
	stateStorage = "storage"
	// stateStopping is the state of a container that was sent the stop signal and has not ended.
	stateStopping = "stopping"
	statePaused   = "paused"
	// stateCreated is the state of a container that was created, or whose start failed or was
	// interrupted.
	stateCreated = "created"
	// stateInitialized is the state of a container that is ready to start.
	stateInitialized = "initialized"
)

func (c *container) external() bool { return c.State == stateStorage }

func (c *container) name() string {
	if len(c.Names) == 0 {
		return c.ID[:min(len(c.ID), 12)]
	}
	return strings.TrimPrefix(c.Names[0], "/")
}

// state returns the container's state. A created container that has run before counts as exited.
func (c *container) state() runtime.ContainerState {
	if c.State == stateCreated && c.StartedAt > 0 {
		return runtime.Exited
	}
	return state(c.State)
}

// podID returns the ID of the container's pod: of Podman's pod, of a Compose project, or the
// container's own.
func (c *container) podID() string {
	if c.Pod != "" {
		return c.Pod
	}
	return compose.PodID(c.Labels, c.ID)
}

// list lists all containers, including infra containers and those of other tools.
func (r *Runtime) list(ctx context.Context) ([]container, error) {
	var list []container
	err := r.get(ctx, "ListContainers", "list containers", "/containers/json", url.Values{"all": {"true"}, "external": {"true"}}, &list)
	if err != nil {
		return nil, err
	}
	return list, distinct("list containers", "container", list, func(c *container) string { return c.ID })
}

// distinct rejects a list in which an object has no ID, or the ID of another object. Otherwise a
// decision could apply to the wrong object.
func distinct[T any](what, kind string, list []T, id func(*T) string) error {
	seen := make(map[string]bool, len(list))
	for i := range list {
		switch id := id(&list[i]); {
		case id == "":
			return fmt.Errorf("%s: %w: %s %d of the list has no ID", what, runtime.ErrInvalidAnswer, kind, i+1)
		case seen[id]:
			return fmt.Errorf("%s: %w: %s %q is listed twice", what, runtime.ErrInvalidAnswer, kind, id)
		default:
			seen[id] = true
		}
	}
	return nil
}

// state translates Podman's states of libpod/define/containerstate.go.
func state(s string) runtime.ContainerState {
	switch s {
	case stateCreated, stateInitialized, "configured":
		return runtime.Created
	case "running", statePaused, stateStopping:
		return runtime.Running
	case "stopped", "exited", "removing":
		return runtime.Exited
	}
	return runtime.Unknown
}
