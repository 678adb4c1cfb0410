package docker

import (
	"strings"

	"github.com/moby/moby/api/types/container"

	"hostler.io/hostler/runtime"
)

// Labels by which Docker Compose knows its containers, see api/labels.go there.
const (
	labelProject   = "com.docker.compose.project"
	labelService   = "com.docker.compose.service"
	labelDependsOn = "com.docker.compose.depends_on"
	labelOneOff    = "com.docker.compose.oneoff" // "True" for those of `docker compose run`
)

// projectPrefix tells the ID of a project from that of a container.
const projectPrefix = "compose:"

// project is the Compose project that a container belongs to; empty if to none.
func project(c *container.Summary) string { return c.Labels[labelProject] }

func podID(c *container.Summary) string {
	if p := project(c); p != "" {
		return projectPrefix + p
	}
	return c.ID
}

// serviceKey names a service of a project.
type serviceKey struct{ podID, service string }

// serviceOf is the service that a container is of. Others may need that, but not the
// container of a single run.
func serviceOf(c *container.Summary) (serviceKey, bool) {
	service := c.Labels[labelService]
	return serviceKey{podID(c), service}, project(c) != "" && service != "" && c.Labels[labelOneOff] != "True"
}

// needed lists the containers that a container needs, by what Compose wrote down:
// "db:service_healthy:true,cache:service_started:false". A service that has no container
// is needed in vain.
func needed(c *runtime.Container, services map[serviceKey][]string) []string {
	if c.Labels[labelProject] == "" {
		return nil
	}
	var ids []string
	for dependency := range strings.SplitSeq(c.Labels[labelDependsOn], ",") {
		service, _, _ := strings.Cut(dependency, ":")
		for _, id := range services[serviceKey{c.PodID, strings.TrimSpace(service)}] {
			if id != c.ID {
				ids = append(ids, id)
			}
		}
	}
	return ids
}
