//go:build integration

package docker_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/test/lab"
)

// store is a runtime to which images are pulled.
type store struct {
	at     string // line of the configuration
	prefix string // of image names
	pull   func(context.Context, lab.ImageSpec) (string, error)
}

func ofDocker(t *testing.T, root string) store {
	t.Helper()
	d := lab.DockerFor(t, lab.DockerOptions{Root: filepath.Join(root, "docker")})
	return store{fmt.Sprintf("{type: docker, endpoint: %q}", d.Endpoint), d.Reference(""), d.Pull}
}

// Of two runtimes on one filesystem, the least recently used image is removed first, whichever
// runtime has it.
func TestTwoRuntimesOnOneFilesystemShareOneCollection(t *testing.T) {
	const bytes = 256 << 20
	t.Run("containerd and Docker", func(t *testing.T) {
		c := lab.ContainerdFor(t, lab.ContainerdOptions{ImageFSBytes: bytes})
		theyShareOneCollection(t, ofDocker(t, c.Root), store{fmt.Sprintf("{type: cri, endpoint: %q}", c.Endpoint), "docker.io/library/", c.Pull}, "containerd", "docker")
	})
	t.Run("Podman and Docker", func(t *testing.T) {
		p := lab.PodmanFor(t, lab.PodmanOptions{ImageFSBytes: bytes})
		theyShareOneCollection(t, ofDocker(t, p.Root), store{fmt.Sprintf("{type: podman, endpoint: %q}", p.Endpoint), p.Registry.Address + "/", p.Pull}, "docker", "podman")
	})
}

func theyShareOneCollection(t *testing.T, one, other store, names ...string) {
	t.Helper()
	a := startAgentOf(t, fmt.Sprintf("runtimes: [%s, %s]\n", one.at, other.at)+
		"imageGC: {enabled: true, highThresholdPercent: 99, lowThresholdPercent: 98, minimumAge: 0s}\n", names...)

	var images []string // in order of creation, from each runtime in turn
	for i := range 6 {
		of := []store{one, other}[i%2]
		name := fmt.Sprintf("%sshop/unused-%d:1", of.prefix, i)
		layer, err := lab.RandomLayer(12 << 20)
		check(t, err)
		_, err = of.pull(t.Context(), lab.ImageSpec{Names: []string{name}, Layers: []lab.Layer{layer}})
		check(t, err)
		images = append(images, name)
		eventually(t, "the agent knows "+name, func() bool {
			list, err := a.api.Images(t.Context())
			return err == nil && slices.ContainsFunc(list.Images, func(img api.Image) bool {
				return slices.Contains(img.Names, name) && !img.FirstSeen.IsZero()
			})
		})
	}

	s := a.await("the filesystem is measured", func(s api.Status) bool {
		return len(s.ImageGC.Filesystems) == 1 && s.ImageGC.Filesystems[0].UsedPercent > 0 && s.ImageGC.Unused >= len(images)
	})
	// Each image takes about 5 % of the filesystem, and twice that in containerd.
	report, err := a.api.Collect(t.Context(), api.CollectRequest{Images: true, TargetPercent: s.ImageGC.Filesystems[0].UsedPercent - 12}, func(api.Step) {})
	check(t, err)
	if len(report.Errors) > 0 {
		t.Errorf("gc run failed at %v", report.Errors)
	}
	var gone []string
	for _, r := range report.Removed {
		gone = append(gone, r.Names[0]) // the other name is its digest
	}
	if len(gone) < 2 || len(gone) == len(images) || !slices.Equal(gone, images[:len(gone)]) {
		t.Errorf("gc run removed %q, want some of %q, the first of them first", gone, images)
	}
	list, err := a.api.Images(t.Context())
	check(t, err)
	for _, img := range list.Images {
		if slices.ContainsFunc(img.Names, func(name string) bool { return slices.Contains(gone, name) }) {
			t.Errorf("%q is there, want it removed", img.Names)
		}
	}
}
