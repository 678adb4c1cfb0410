//go:build integration

package docker_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/test/lab"
)

// Of two runtimes on one filesystem the image goes first that was unused longest,
// whichever has it.
func TestTwoRuntimesOnOneFilesystemShareOneCollection(t *testing.T) {
	c := lab.ContainerdFor(t, lab.ContainerdOptions{ImageFSBytes: 256 << 20})
	d := lab.DockerFor(t, lab.DockerOptions{Root: filepath.Join(c.Root, "docker")})
	a := startAgentOf(t, fmt.Sprintf("runtimes: [{type: cri, endpoint: %q}, {type: docker, endpoint: %q}]\n", c.Endpoint, d.Endpoint)+
		"imageGC: {enabled: true, highThresholdPercent: 99, lowThresholdPercent: 98, minimumAge: 0s}\n", "containerd", "docker")

	pulls := []func(lab.ImageSpec) (string, error){
		func(spec lab.ImageSpec) (string, error) { return d.Pull(t.Context(), spec) },
		func(spec lab.ImageSpec) (string, error) { return c.Pull(t.Context(), spec) },
	}
	var names []string // the one that came first, first: Docker's and containerd's in turn
	for i := range 6 {
		name := fmt.Sprintf("docker.io/library/unused-%d:1", i)
		if i%2 == 0 {
			name = d.Reference(fmt.Sprintf("shop/unused-%d:1", i))
		}
		layer, err := lab.RandomLayer(12 << 20)
		check(t, err)
		_, err = pulls[i%2](lab.ImageSpec{Names: []string{name}, Layers: []lab.Layer{layer}})
		check(t, err)
		names = append(names, name)
		eventually(t, "the agent knows "+name, func() bool {
			list, err := a.api.Images(t.Context())
			return err == nil && slices.ContainsFunc(list.Images, func(img api.Image) bool {
				return slices.Contains(img.Names, name) && !img.FirstSeen.IsZero()
			})
		})
	}

	s := a.await("the filesystem is measured", func(s api.Status) bool {
		return len(s.ImageGC.Filesystems) == 1 && s.ImageGC.Filesystems[0].UsedPercent > 0 && s.ImageGC.Unused >= len(names)
	})
	// Each image takes some 5 % of the filesystem, in containerd twice that.
	report, err := a.api.Collect(t.Context(), api.CollectRequest{Images: true, TargetPercent: s.ImageGC.Filesystems[0].UsedPercent - 12}, func(api.Step) {})
	check(t, err)
	if len(report.Errors) > 0 {
		t.Errorf("gc run failed at %v", report.Errors)
	}
	var gone []string
	for _, r := range report.Removed {
		gone = append(gone, r.Names[0]) // the other is its digest
	}
	if len(gone) < 2 || len(gone) == len(names) || !slices.Equal(gone, names[:len(gone)]) {
		t.Errorf("gc run removed %q, want some of %q, the first of them first", gone, names)
	}
	list, err := a.api.Images(t.Context())
	check(t, err)
	for _, img := range list.Images {
		if slices.ContainsFunc(img.Names, func(name string) bool { return slices.Contains(gone, name) }) {
			t.Errorf("%q is there, want it removed", img.Names)
		}
	}
}
