package runtimetest

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"hostler.io/hostler/runtime"
)

var _ runtime.LayerLister = (*Fake)(nil)

// Layers lists layers with the images and containers that use them.
func (f *Fake) Layers(ctx context.Context) ([]runtime.Layer, error) {
	if !f.opts.ReportsLayers {
		return nil, fmt.Errorf("list layers: %w", runtime.ErrUnsupported)
	}
	_, finish, err := f.begin(ctx, Layers, "", 0)
	if err = finish(err); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	byID := make(map[string]*runtime.Layer)
	of := func(l Layer) *runtime.Layer {
		if byID[l.ID] == nil {
			byID[l.ID] = &runtime.Layer{Runtime: f.opts.Name, Bytes: l.Bytes, Inodes: l.Inodes}
		}
		return byID[l.ID]
	}
	for _, i := range f.images {
		for _, l := range i.layers {
			layer := of(l)
			layer.Images = append(layer.Images, i.ID)
		}
	}
	for _, c := range f.containers() {
		for _, l := range c.layers {
			layer := of(l)
			layer.Users = append(layer.Users, c.ID)
		}
	}
	layers := make([]runtime.Layer, 0, len(byID))
	for _, id := range slices.Sorted(maps.Keys(byID)) {
		layers = append(layers, *byID[id])
	}
	return layers, nil
}

// CheckLayers tests that a runtime reports the layers of two images. Both images and a container of
// the first use a layer of 4 MiB or more. Only the first image and the container use a layer of 2
// to 4 MiB.
func CheckLayers(t testing.TB, r runtime.LayerLister, first, second, containerID string) {
	t.Helper()
	layers, err := r.Layers(t.Context())
	if err != nil {
		t.Fatalf("Layers() = %v", err)
	}
	shared, held, own := false, false, false
	for _, l := range layers {
		images := slices.Sorted(slices.Values(l.Images))
		ofFirst, used := slices.Contains(images, first), slices.Contains(l.Users, containerID)
		shared = shared || l.Bytes >= 4<<20 && ofFirst && slices.Contains(images, second)
		held = held || l.Bytes >= 4<<20 && ofFirst && used
		own = own || l.Bytes >= 2<<20 && l.Bytes < 4<<20 && slices.Equal(images, []string{first}) && used
		if len(l.Images) == 0 {
			t.Errorf("Layers() has %+v, want only layers of images", l)
		}
	}
	if !shared || !held || !own {
		t.Errorf("Layers() = %+v, want 4 MiB held by %s and %s, one held by container %s, and 2 MiB held by the first", layers, first, second, containerID)
	}
}

// CheckOwnedSpace tests that a runtime reports a folder in which a container writes.
func CheckOwnedSpace(t testing.TB, r runtime.SpaceOwner, containerID string) {
	t.Helper()
	owned, err := r.OwnedSpace(t.Context())
	if err != nil {
		t.Fatalf("OwnedSpace() = %v", err)
	}
	for _, space := range owned {
		if space.Container != containerID || space.By == "" {
			continue
		}
		for _, written := range []string{"fs", "diff"} { // in containerd and other runtimes
			if _, err := os.Stat(filepath.Join(space.Folder, written)); err == nil {
				return
			}
		}
	}
	t.Errorf("OwnedSpace() = %+v, want the folder that container %s writes to", owned, containerID)
}
