//go:build integration

package podman_test

import (
	"testing"

	"hostler.io/hostler/runtime/runtimetest"
	"hostler.io/hostler/test/lab"
)

func TestPodmansLayersAreKnown(t *testing.T) {
	r, d := startPodman(t, lab.PodmanOptions{})
	shared, err := lab.RandomLayer(4 << 20)
	check(t, err)
	own, err := lab.RandomLayer(2 << 20)
	check(t, err)
	first, err := d.Load(t.Context(), lab.ImageSpec{Names: []string{"docker.io/library/first:1"}, Layers: []lab.Layer{shared, own}})
	check(t, err)
	second, err := d.Load(t.Context(), lab.ImageSpec{Names: []string{"docker.io/library/second:1"}, Layers: []lab.Layer{shared}})
	check(t, err)
	container, err := d.Run(t.Context(), lab.PodmanContainer{Name: "dead", Image: "docker.io/library/first:1", Unstarted: true})
	check(t, err)
	runtimetest.CheckLayers(t, r, first, second, container)
	runtimetest.CheckOwnedSpace(t, r, container)
}
