//go:build integration

package podman_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"hostler.io/hostler/test/lab"
)

func TestPodmansImagesAreRemovedFromAFullDisk(t *testing.T) {
	r, d := startPodman(t, lab.PodmanOptions{ImageFSBytes: 64 << 20})
	layer, err := lab.RandomLayer(8 << 20)
	check(t, err)
	_, err = d.Load(t.Context(), lab.ImageSpec{Names: []string{"docker.io/library/app:1", "docker.io/library/other:1"}, Layers: []lab.Layer{layer}})
	check(t, err)
	list, err := r.Images(t.Context())
	check(t, err)
	f, err := os.Create(filepath.Join(d.Root, "data"))
	check(t, err)
	defer f.Close()
	for _, size := range []int{1 << 20, 4096, 1} {
		for err = nil; err == nil; _, err = f.Write(make([]byte, size)) {
		}
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
	}
	check(t, r.RemoveImage(t.Context(), list[0]))
	if list, err = r.Images(t.Context()); err != nil || len(list) > 0 {
		t.Errorf("Images() = %+v, %v, want none", list, err)
	}
}
