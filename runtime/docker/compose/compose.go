// Package compose groups containers into pods, for runtimes without pods or with containers outside
// of pods. The containers of a Compose project are one pod, and any other container is its own pod.
//
// It owns the labels by which Docker Compose and podman-compose mark their containers.
package compose

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"hostler.io/hostler/runtime"
)

// Labels with which Docker Compose identifies its containers, see api/labels.go there.
// podman-compose also sets the first two; older versions set their own.
const (
	labelProject   = "com.docker.compose.project"
	labelService   = "com.docker.compose.service"
	labelDependsOn = "com.docker.compose.depends_on"
	labelOneOff    = "com.docker.compose.oneoff" // "True" for containers of `docker compose run`
	labelPodman    = "io.podman.compose.project"
)

// Project returns the Compose project in a container's labels, or "".
func Project(labels map[string]string) string {
	return cmp.Or(labels[labelProject], labels[labelPodman])
}

// PodID returns the ID of a container's pod: the ID of its project, or the container's own.
func PodID(labels map[string]string, id string) string {
	if p := Project(labels); p != "" {
		return runtime.ProjectPrefix + p
	}
	return id
}

// Pods groups containers by PodID, sorted by creation time. It adds the dependencies that Compose
// recorded to StopsBefore.
func Pods(containers []runtime.Container) []runtime.Pod {
	byID := map[string]*runtime.Pod{}
	services := map[serviceKey][]string{}
	for i := range containers {
		c := &containers[i]
		pod := byID[c.PodID]
		if pod == nil {
			pod = &runtime.Pod{Runtime: c.Runtime, ID: c.PodID, UID: c.PodID, Name: cmp.Or(Project(c.Labels), c.Name)}
			byID[pod.ID] = pod
		}
		pod.Containers = append(pod.Containers, *c)
		if key, isService := serviceOf(c); isService {
			services[key] = append(services[key], c.ID)
		}
	}
	pods := make([]runtime.Pod, 0, len(byID))
	for _, p := range byID {
		finish(p, services)
		pods = append(pods, *p)
	}
	Sort(pods)
	return pods
}

// Sort sorts pods by creation time.
func Sort(pods []runtime.Pod) {
	slices.SortFunc(pods, func(a, b runtime.Pod) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
}

// finish sets the fields of a pod that depend on its containers.
func finish(p *runtime.Pod, services map[serviceKey][]string) {
	slices.SortFunc(p.Containers, func(a, b runtime.Container) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	p.CreatedAt = p.Containers[0].CreatedAt
	p.Labels, p.Annotations = maps.Clone(p.Containers[0].Labels), maps.Clone(p.Containers[0].Annotations)
	for i := range p.Containers {
		c := &p.Containers[i]
		p.Ready = p.Ready || c.State == runtime.Running
		keepCommon(p.Labels, c.Labels)
		keepCommon(p.Annotations, c.Annotations)
		c.StopsBefore = append(c.StopsBefore, needed(c, services)...)
	}
}

// keepCommon removes from all the entries that others lacks or that differ: a pod's labels are
// those that all its containers have.
func keepCommon(all, others map[string]string) {
	maps.DeleteFunc(all, func(key, value string) bool {
		other, found := others[key]
		return !found || other != value
	})
}

// serviceKey names a service of a project.
type serviceKey struct{ podID, service string }

// serviceOf returns the service of a container, on which other containers may depend. It returns
// false for a container of `docker compose run`.
func serviceOf(c *runtime.Container) (serviceKey, bool) {
	service := c.Labels[labelService]
	return serviceKey{c.PodID, service}, Project(c.Labels) != "" && service != "" && c.Labels[labelOneOff] != "True"
}

// needed lists the containers on which a container depends, from the label that Compose sets:
// "db:service_healthy:true,cache:service_started:false". It ignores services without containers.
// Because an image can also set the label, a service may occur any number of times.
func needed(c *runtime.Container, services map[serviceKey][]string) []string {
	if Project(c.Labels) == "" {
		return nil
	}
	var ids []string
	found := map[string]bool{}
	for dependency := range strings.SplitSeq(c.Labels[labelDependsOn], ",") {
		service, _, _ := strings.Cut(dependency, ":")
		if service = strings.TrimSpace(service); found[service] {
			continue
		}
		found[service] = true
		for _, id := range services[serviceKey{c.PodID, service}] {
			if id != c.ID {
				ids = append(ids, id)
			}
		}
	}
	return ids
}
