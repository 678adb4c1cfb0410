//go:build integration

package docker_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/test/lab"
)

// fill writes to a folder until its filesystem has no free byte.
func fill(t *testing.T, folder string) {
	t.Helper()
	f, err := os.Create(filepath.Join(folder, "data"))
	check(t, err)
	defer f.Close()
	for _, size := range []int{1 << 20, 4096, 1} {
		for err = nil; err == nil; _, err = f.Write(make([]byte, size)) {
		}
		if !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, io.ErrShortWrite) {
			t.Fatal(err)
		}
	}
	check(t, f.Sync())
}

// On a full disk, Docker removes a name, then cannot save that, and returns an error.
func TestDockersImagesAreRemovedFromAFullDisk(t *testing.T) {
	onEachDocker(t, func(t *testing.T, o lab.DockerOptions) {
		for _, names := range [][]string{{"docker.io/library/app:1"}, {"docker.io/library/app:1", "docker.io/library/other:2", "docker.io/team/third:3"}} {
			o.ImageFSBytes = 64 << 20
			r, d := startDocker(t, o)
			layer, err := lab.RandomLayer(8 << 20)
			check(t, err)
			id, err := d.Load(t.Context(), lab.ImageSpec{Names: names, Layers: []lab.Layer{layer}})
			check(t, err)
			list, err := r.Images(t.Context())
			check(t, err)
			at := slices.IndexFunc(list, func(img runtime.Image) bool { return img.ID == id })
			fill(t, d.Root)
			if err := r.RemoveImage(t.Context(), list[at]); err != nil {
				t.Errorf("RemoveImage() on a full disk = %v, want it removed", err)
			}
			if list, err = r.Images(t.Context()); err != nil || slices.ContainsFunc(list, func(img runtime.Image) bool { return img.ID == id }) {
				t.Errorf("Images() = %+v, %v, want %s gone", list, err, id)
			}
			check(t, d.Close(t.Context()))
		}
	})
}
