// Package compose groups containers into pods for runtimes without pods, or with containers outside
// of pods: the containers of a Compose project are one pod, any other container is its own pod.
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

// Labels by which Docker Compose knows its containers, see api/labels.go there.
// podman-compose writes the first two as well, and older ones their own.
const (
	labelProject   = "com.docker.compose.project"
	labelService   = "com.docker.compose.service"
	labelDependsOn = "com.docker.compose.depends_on"
	labelOneOff    = "com.docker.compose.oneoff" // "True" for those of `docker compose run`
	labelPodman    = "io.podman.compose.project"
)

// projectPrefix distinguishes IDs of projects from IDs of containers.
const projectPrefix = "compose:"

// Project is the Compose project of a container with such labels; empty if it is of none.
func Project(labels map[string]string) string {
	return cmp.Or(labels[labelProject], labels[labelPodman])
}

// PodID is the ID of the pod that a container with such labels is of: its project's, or
// its own.
func PodID(labels map[string]string, id string) string {
	if p := Project(labels); p != "" {
		return projectPrefix + p
	}
	return id
}

// Pods groups containers by their PodID, by time of creation. It fills in StopsBefore by
// what Compose wrote down, beside what is there already.
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

// Sort sorts pods by time of creation.
func Sort(pods []runtime.Pod) {
	slices.SortFunc(pods, func(a, b runtime.Pod) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
}

// finish fills in what a pod has from its containers.
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

// keepCommon removes from all what is not the same in the others: labels of a pod are those that
// all its containers have.
func keepCommon(all, others map[string]string) {
	maps.DeleteFunc(all, func(key, value string) bool {
		other, found := others[key]
		return !found || other != value
	})
}

// serviceKey names a service of a project.
type serviceKey struct{ podID, service string }

// serviceOf is the service that a container is of. Others may need that, but not the
// container of a single run.
func serviceOf(c *runtime.Container) (serviceKey, bool) {
	service := c.Labels[labelService]
	return serviceKey{c.PodID, service}, Project(c.Labels) != "" && service != "" && c.Labels[labelOneOff] != "True"
}

// needed lists the containers that a container needs, by what Compose wrote down:
// "db:service_healthy:true,cache:service_started:false". A service that has no container
// is needed in vain. An image can have the label too, and name a service any number of times.
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
