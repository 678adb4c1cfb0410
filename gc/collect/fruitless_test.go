package collect_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"hostler.io/hostler/gc"
	"hostler.io/hostler/gc/fruitless"
	"hostler.io/hostler/internal/statefile"
	"hostler.io/hostler/runtime/runtimetest"
)

// sharers adds images of one shared layer of 40 MiB and a manifest of 4 KiB each. A container of
// the last one holds the layer.
func (h *host) sharers(count int) (podID string) {
	h.t.Helper()
	for i := range count {
		h.pull(fmt.Sprintf("i%d", i), runtimetest.Layer{ID: "shared", Bytes: 40 * mib, Inodes: 100},
			runtimetest.Layer{ID: fmt.Sprint("manifest ", i), Bytes: 4 << 10, Inodes: 1})
	}
	return h.fake.RunPod(runtimetest.PodSpec{Name: "p", Containers: []runtimetest.ContainerSpec{{Name: "c", Image: fmt.Sprintf("sha256:i%d", count-1)}}}).ID
}

func TestCollectKeepsImagesThatFreeNothing(t *testing.T) {
	tests := []struct {
		name    string
		options runtimetest.Options
		want    int // number of images that a run removes
	}{
		{"where the runtime reports layers none is removed", runtimetest.Options{ReportsLayers: true}, 0},
		{"elsewhere two removals show it", runtimetest.Options{}, 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHost(t, tt.options)
				h.survey.Fruitless = fruitless.New(statefile.NewMemory().File("gc-fruitless"))
				h.sharers(11)
				h.fill(90)
				r := h.collect(h.images(), gc.Options{})
				if len(r.Removed) != tt.want || len(r.Warnings) != 1 {
					t.Errorf("Collect() removed %v, warnings %q, want %d images and one warning", removed(r), r.Warnings, tt.want)
				}
				r = h.collect(h.images(), gc.Options{})
				if len(r.Removed) != 0 || r.Kept[gc.FreesNothing] != 10-tt.want || len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], "frees-nothing") {
					t.Errorf("Collect() again removed %v, kept %v, warnings %q, want none removed, and why", removed(r), r.Kept, r.Warnings)
				}
			})
		})
	}
}

// A record stays valid until the state of the host changes, even across a restart.
func TestCollectRemembersThatRemovalsFreedNothing(t *testing.T) {
	tests := []struct {
		name   string
		change func(h *host, podID string)
		want   []string
	}{
		{"nothing changes", func(*host, string) {}, []string{}},
		{"the disk fills up further", func(h *host, _ string) { h.fill(95) }, []string{}},
		{"another image comes, which frees something", func(h *host, _ string) { h.pull("new"); h.fill(90) }, []string{"new lru"}},
		{"the container is gone that held the layer", func(h *host, podID string) {
			h.fake.TakePod(podID)
			time.Sleep(time.Hour) // its image was used just now
		}, []string{"i2 lru", "i3 lru"}},
		{"a day passes", func(*host, string) { time.Sleep(24 * time.Hour) }, []string{"i2 lru", "i3 lru"}},
		{"space was freed and is full again", func(h *host, _ string) {
			h.fill(50)
			h.collect(h.images(), gc.Options{})
			h.fill(90)
		}, []string{"i2 lru", "i3 lru"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHost(t, runtimetest.Options{})
				state := statefile.NewMemory().File("gc-fruitless")
				h.survey.Fruitless = fruitless.New(state)
				podID := h.sharers(8)
				h.fill(90)
				if r := h.collect(h.images(), gc.Options{}); len(r.Removed) != 2 || r.Ended != "two removals in a row freed nothing" {
					t.Fatalf("Collect() removed %v, ended %q, want two images for nothing", removed(r), r.Ended)
				}
				h.survey.Fruitless = fruitless.New(state)
				tt.change(h, podID)
				if got := removed(h.collect(h.images(), gc.Options{})); !slices.Equal(got, tt.want) {
					t.Errorf("Collect() after a restart removed %v, want %v", got, tt.want)
				}
			})
		})
	}
}

// Files that a process holds open, snapshots and reservations use the space of removed layers.
func TestCollectEndsWhereFreeingDoesNotShow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, runtimetest.Options{ReportsLayers: true})
		h.survey.Fruitless = fruitless.New(statefile.NewMemory().File("gc-fruitless"))
		for i := range 8 {
			h.pull(fmt.Sprintf("i%d", i))
		}
		h.fill(90)
		full := h.fake.Usage().AvailableBytes
		h.meter.change = func(u *gc.Usage) { u.AvailableBytes = full }
		images := h.images()
		if r := h.collect(images, gc.Options{}); len(r.Removed) != 2 {
			t.Errorf("Collect() removed %v, want two images", removed(r))
		}
		if r := h.collect(images, gc.Options{}); len(r.Removed) != 0 || r.Kept[gc.FreesNothing] != 6 {
			t.Errorf("Collect() again removed %v, kept %v, want none", removed(r), r.Kept)
		}
		h.meter.change = nil // the process ends, and its files are freed
		h.fill(90)
		h.meter.change = func(u *gc.Usage) { u.AvailableBytes += 20 * mib }
		if r := h.collect(images, gc.Options{}); len(r.Removed) == 0 {
			t.Errorf("Collect() after space became free removed %v, want some again; kept %v", removed(r), r.Kept)
		}
	})
}

// Whoever may load images can load small ones, and other programs write more than these free.
func TestSmallImagesDoNotEndARun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, runtimetest.Options{ReportsLayers: true})
		h.survey.Fruitless = fruitless.New(statefile.NewMemory().File("gc-fruitless"))
		for i := range 4 {
			h.pull(fmt.Sprintf("small%d", i), runtimetest.Layer{ID: fmt.Sprint("small ", i), Bytes: 10 << 10, Inodes: 1})
		}
		h.pull("large")
		h.fill(90)
		full := h.fake.Usage()
		h.meter.change = func(u *gc.Usage) { // others write 1 MiB
			u.AvailableBytes -= min(u.AvailableBytes-full.AvailableBytes, mib)
			u.InodesFree -= min(u.InodesFree-full.InodesFree, 10)
		}
		r := h.collect(h.images(), gc.Options{})
		if got := removed(r); !slices.Contains(got, "large lru") {
			t.Errorf("Collect() removed %v, ended %q, want the large image too", got, r.Ended)
		}
	})
}
