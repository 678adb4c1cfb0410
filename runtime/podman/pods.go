package podman

import (
	"context"
	"maps"
	"slices"
	"time"

	"hostler.io/hostler/internal/sanitize"
	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/docker/compose"
)

// Pods lists Podman's pods, Compose projects and single containers, by creation time. It takes one
// call, one more if there are Podman pods, and one for each container that is new, has started or
// has ended. While nothing changes, it takes none.
func (r *Runtime) Pods(ctx context.Context) ([]runtime.Pod, error) {
	if err := r.check(ctx, "list pods"); err != nil {
		return nil, err
	}
	pods, err := r.answers.pods.get(ctx, &r.changes, func(ctx context.Context) ([]runtime.Pod, error) {
		pods, err := r.queryPods(ctx)
		return sanitize.Clean(pods), err
	})
	return clone(pods), err
}

// clone copies the lists that callers may modify.
func clone(pods []runtime.Pod) []runtime.Pod {
	pods = slices.Clone(pods)
	for i := range pods {
		pods[i].Containers = slices.Clone(pods[i].Containers)
	}
	return pods
}

func (r *Runtime) queryPods(ctx context.Context) ([]runtime.Pod, error) {
	list, err := r.list(ctx)
	if err != nil {
		return nil, err
	}
	infra, own := split(list)
	ofUnits := r.podUnits.set(infra)
	known := r.facts.complete(ctx, r, slices.Concat(own, ofUnits))
	own = slices.DeleteFunc(own, func(c *container) bool { return known[c.ID].service })
	if slices.ContainsFunc(list, func(c container) bool { return c.State == stateInitialized }) {
		r.changes.note() // no file shows when it starts
	}
	reported := r.queryUnits(ctx, own, ofUnits, known)
	containers := make([]runtime.Container, len(own))
	for i, c := range own {
		containers[i] = r.container(c, known[c.ID], reported)
	}
	dependencies(containers, infra)
	for i, c := range own {
		containers[i].StopsBefore = append(containers[i].StopsBefore, find(own, c.ID, known[c.ID].volumes)...)
	}
	pods := compose.Pods(containers)
	if len(infra) == 0 && !slices.ContainsFunc(own, func(c *container) bool { return c.Pod != "" }) {
		return pods, nil
	}
	return r.withPods(ctx, pods, infra)
}

// split returns the infra containers by pod, and Podman's other containers.
func split(list []container) (infra map[string]*container, own []*container) {
	infra = map[string]*container{}
	for i := range list {
		switch c := &list[i]; {
		case c.external():
		case c.IsInfra:
			infra[c.Pod] = c
		default:
			own = append(own, c)
		}
	}
	return infra, own
}

// dependencies removes containers that are not listed from what containers need. It replaces an
// infra container by all containers of its pod, or by none if the container belongs to that pod.
func dependencies(containers []runtime.Container, infra map[string]*container) {
	podOf, ofPod, held := map[string]string{}, map[string][]string{}, map[string]string{}
	for i := range containers {
		c := &containers[i]
		podOf[c.ID] = c.PodID
		ofPod[c.PodID] = append(ofPod[c.PodID], c.ID)
	}
	for pod, c := range infra {
		held[c.ID] = pod
	}
	for i := range containers {
		c := &containers[i]
		needs := c.StopsBefore
		c.StopsBefore = nil
		for _, id := range needs {
			switch pod, holds := held[id]; {
			case holds && pod != c.PodID:
				c.StopsBefore = append(c.StopsBefore, ofPod[pod]...)
			case podOf[id] != "":
				c.StopsBefore, c.Joins = append(c.StopsBefore, id), append(c.Joins, id) // Podman starts them together
			}
		}
	}
}

// find returns the IDs of the containers with the IDs or names in meant, except own.
func find(list []*container, own string, meant []string) (ids []string) {
	for _, other := range meant {
		for _, c := range list {
			if c.ID != own && (c.ID == other || slices.Contains(c.Names, other)) && !slices.Contains(ids, c.ID) {
				ids = append(ids, c.ID)
			}
		}
	}
	return ids
}

// pod is a pod in Podman's list.
type pod struct {
	ID      string `json:"Id"`
	Name    string
	Created time.Time
	Labels  map[string]string
}

// withPods adds data of Podman's pods that their containers lack, and pods that have only an infra
// container.
func (r *Runtime) withPods(ctx context.Context, pods []runtime.Pod, infra map[string]*container) ([]runtime.Pod, error) {
	const what = "list pods"
	var list []pod
	if err := r.get(ctx, "ListPods", what, "/pods/json", nil, &list); err != nil {
		return nil, err
	}
	if err := distinct(what, "pod", list, func(p *pod) string { return p.ID }); err != nil {
		return nil, err
	}
	for _, p := range list {
		c := infra[p.ID]
		ready := c != nil && state(c.State) == runtime.Running
		i := slices.IndexFunc(pods, func(known runtime.Pod) bool { return known.ID == p.ID })
		if i < 0 {
			if c == nil { // a pod without containers runs nothing
				continue
			}
			pods = append(pods, runtime.Pod{Runtime: r.name, ID: p.ID, UID: p.ID})
			i = len(pods) - 1
		}
		known := &pods[i]
		known.Name, known.CreatedAt, known.Ready = p.Name, p.Created, known.Ready || ready
		if known.Labels == nil {
			known.Labels = map[string]string{}
		}
		maps.Copy(known.Labels, p.Labels)
	}
	compose.Sort(pods)
	return pods, nil
}

func (r *Runtime) container(c *container, f fact, reported unitCache) runtime.Container {
	converted := runtime.Container{
		Runtime: r.name, ID: c.ID, PodID: c.podID(), Name: c.name(),
		Image: c.Image, ImageID: c.ImageID,
		State: c.state(), CreatedAt: c.Created, Restart: r.restart(c, f, reported),
		Incomplete: f.policy == "", StopTimeout: f.stopTimeout, StopsBefore: slices.Clone(f.needs),
		Labels: c.Labels, Annotations: f.annotations,
	}
	converted.Unit, converted.UnitGrace = r.unit(c, f, reported)
	if converted.StartedAt, converted.FinishedAt = f.times(c); !converted.FinishedAt.IsZero() {
		converted.ExitCode = c.ExitCode
	}
	return converted
}
