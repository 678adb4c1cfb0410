package compose_test

import (
	"fmt"
	"strings"
	"testing"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/docker/compose"
)

func TestProjectsOfEachComposeAreRecognized(t *testing.T) {
	for name, c := range map[string]struct {
		labels map[string]string
		want   string
	}{
		"Docker Compose":        {map[string]string{"com.docker.compose.project": "shop"}, "compose:shop"},
		"an old podman-compose": {map[string]string{"io.podman.compose.project": "shop"}, "compose:shop"},
		"podman-compose":        {map[string]string{"com.docker.compose.project": "shop", "io.podman.compose.project": "shop"}, "compose:shop"},
		"nobody":                {map[string]string{"project": "shop"}, "c"},
	} {
		if got := compose.PodID(c.labels, "c"); got != c.want {
			t.Errorf("PodID() of what %s has made = %q, want %q", name, got, c.want)
		}
	}
}

// An image's author sets labels of all its containers. Dependencies must be limited by the number
// of containers, not by the label.
func TestAServiceThatIsNamedManyTimesIsNeededOnce(t *testing.T) {
	const count = 10
	var containers []runtime.Container
	for i := range count {
		containers = append(containers, runtime.Container{ID: fmt.Sprint(i), PodID: "compose:shop", Labels: map[string]string{
			"com.docker.compose.project": "shop", "com.docker.compose.service": "web", "com.docker.compose.depends_on": strings.Repeat("web,", 10_000),
		}})
	}
	pods := compose.Pods(containers)
	if len(pods) != 1 || len(pods[0].Containers) != count {
		t.Fatalf("Pods() = %d pods, want one of %d containers", len(pods), count)
	}
	for _, c := range pods[0].Containers {
		if len(c.StopsBefore) != count-1 {
			t.Errorf("container %s needs %d others, want %d", c.ID, len(c.StopsBefore), count-1)
		}
	}
}
