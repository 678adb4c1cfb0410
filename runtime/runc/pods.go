package runc

import (
	"cmp"
	"context"
	"path/filepath"
	"slices"

	"hostler.io/hostler/internal/sanitize"
	"hostler.io/hostler/runtime"
)

// Pods lists the containers of the root by creation time, each as its own pod. A container with
// invalid files does not affect others. Its state is unknown if its process is.
func (r *Runtime) Pods(ctx context.Context) ([]runtime.Pod, error) {
	var pods []runtime.Pod
	err := r.call(ctx, "List", "list containers", func() error {
		return r.store.each(func(c container) bool {
			pods = append(pods, r.pod(c))
			return ctx.Err() == nil
		})
	})
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	slices.SortFunc(pods, func(a, b runtime.Pod) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	return sanitize.Clean(pods), nil
}

// pod translates a container. OCI containers have no labels, so their annotations count as labels,
// to which rules and label selectors apply.
func (r *Runtime) pod(c container) runtime.Pod {
	converted := runtime.Container{
		Runtime: r.name, ID: c.id, PodID: c.id, Name: c.id,
		Image: c.state.annotations[annotationReference], CreatedAt: c.state.created, Labels: c.state.annotations, Restart: runtime.RestartElsewhere,
	}
	if c.state.identified() {
		converted.State, _ = c.phase(r.procRoot) // unknown if it cannot be read
	} else if info, err := c.folder.Stat(filepath.Clean(c.id)); err == nil && c.state.created.IsZero() {
		converted.CreatedAt = info.ModTime()
	}
	if converted.State == runtime.Running {
		converted.Unit = r.unitOf(c.id, ancestors(r.procRoot, c.state.pid))
	}
	return runtime.Pod{
		Runtime: r.name, ID: c.id, UID: c.id, Name: c.id,
		Ready: converted.State == runtime.Running, CreatedAt: converted.CreatedAt, Labels: c.state.annotations,
		Containers: []runtime.Container{converted},
	}
}
