package compose_test

import (
	"testing"

	"hostler.io/hostler/runtime/docker/compose"
)

func TestAProjectGoesByWhicheverComposeHasMadeIt(t *testing.T) {
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
