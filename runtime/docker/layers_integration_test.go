//go:build integration

package docker_test

import (
	"testing"

	"hostler.io/hostler/runtime/docker"
	"hostler.io/hostler/runtime/runtimetest"
	"hostler.io/hostler/test/lab"
)

func TestDockersLayersAreKnown(t *testing.T) {
	onEachDocker(t, func(t *testing.T, o lab.DockerOptions) {
		r, d := startDocker(t, o)
		runtimetest.CheckOwnedSpace(t, r, checkLayers(t, r, d))
		if o.Dockerd == "" { // too old
			return
		}
		t.Run("with images in containerd", func(t *testing.T) {
			r, d := inContainerd(t, o)
			checkLayers(t, r, d)
		})
	})
}

func checkLayers(t *testing.T, r *docker.Runtime, d labDriver) (container string) {
	t.Helper()
	shared, err := lab.RandomLayer(4 << 20)
	check(t, err)
	own, err := lab.RandomLayer(2 << 20)
	check(t, err)
	first, err := d.Load(t.Context(), lab.ImageSpec{Names: []string{"docker.io/library/first:1"}, Layers: []lab.Layer{shared, own}})
	check(t, err)
	second, err := d.Load(t.Context(), lab.ImageSpec{Names: []string{"docker.io/library/second:1"}, Layers: []lab.Layer{shared}})
	check(t, err)
	container, err = d.Run(t.Context(), lab.DockerContainer{Name: "dead", Image: "docker.io/library/first:1", Unstarted: true})
	check(t, err)
	runtimetest.CheckLayers(t, r, first, second, container)
	return container
}
