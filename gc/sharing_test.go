package gc_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"hostler.io/hostler/gc"
	"hostler.io/hostler/runtime"
)

// layer returns a layer of this many MiB. Each letter of images is an image that holds it. users
// also hold it.
func layer(size uint64, images string, users ...string) runtime.Layer {
	l := runtime.Layer{Runtime: "containerd", Bytes: size * mib, Inodes: size, Users: users}
	for _, name := range images {
		l.Images = append(l.Images, "sha256:"+string(name))
	}
	return l
}

func TestPlanChoosesImagesThatFreeSomething(t *testing.T) {
	// a to d: the longest unused first. A container uses u.
	images := func() []gc.ImageFact {
		return []gc.ImageFact{fact("a", 5*time.Hour), fact("b", 4*time.Hour), fact("c", 3*time.Hour), fact("d", 2*time.Hour), fact("u", 0)}
	}
	pods := []runtime.Pod{podWith("p", runtime.Container{ID: "c1", Name: "c", State: runtime.Running, ImageID: "sha256:u"})}
	record := func(change func(*gc.Fruitless)) map[string]gc.Fruitless {
		r := gc.Fruitless{
			At: ago(time.Hour), CapacityBytes: 1000 * mib, AvailableBytes: 150 * mib, Inodes: 1000, InodesFree: 1000,
			Unused: []gc.ImageKey{{Runtime: "containerd", ID: "sha256:a"}, {Runtime: "containerd", ID: "sha256:b"}},
			Held:   []gc.ImageKey{{Runtime: "containerd", ID: "sha256:u"}},
		}
		change(&r)
		return map[string]gc.Fruitless{"/var/lib": r}
	}
	same := record(func(*gc.Fruitless) {})
	tests := []struct {
		name    string
		usage   gc.Usage
		layers  []runtime.Layer
		known   map[string]gc.Fruitless
		options gc.Options
		want    []string
		frees0  string // images that are kept because they free nothing
	}{
		{name: "without known layers the whole size counts", usage: disk(850, 0), want: []string{"a lru"}},
		{
			name: "layers of an image in use stay", usage: disk(850, 0),
			layers: []runtime.Layer{layer(40, "abcdu"), layer(60, "c")}, want: []string{"c lru"}, frees0: "abd",
		},
		{
			name: "layers of a container whose image is gone stay", usage: disk(850, 0),
			layers: []runtime.Layer{layer(100, "abcd", "dead"), layer(0, "a")}, frees0: "abcd",
		},
		{
			name: "a group that shares a layer goes as a whole where that is what frees it", usage: disk(850, 0),
			layers: []runtime.Layer{layer(60, "abcd"), layer(10, "u")}, want: []string{"a lru", "b lru", "c lru", "d lru"},
		},
		{
			name: "what frees nothing in the end is not removed on the way", usage: disk(850, 0),
			layers: []runtime.Layer{layer(60, "acd"), layer(60, "b")}, want: []string{"b lru"},
		},
		{
			name: "a small part of a large image counts where it is much of what lacks", usage: disk(850, 0),
			layers: []runtime.Layer{layer(900, "au"), layer(50, "a"), layer(1, "b")}, want: []string{"a lru"}, frees0: "",
		},
		{
			name: "inodes count where inodes lack", usage: disk(100, 950),
			layers: []runtime.Layer{layer(40, "abcdu"), layer(100, "d")}, want: []string{"d lru"}, frees0: "abc",
		},
		{
			name: "all unused go whatever they free", usage: disk(850, 0), options: gc.Options{AllUnused: true}, known: same,
			layers: []runtime.Layer{layer(40, "abcdu")}, want: []string{"a all-unused", "b all-unused", "c all-unused", "d all-unused"},
		},

		{name: "what has freed nothing before is not tried again", usage: disk(850, 0), known: same, want: []string{"c lru"}, frees0: "ab"},
		{name: "nor where the disk is fuller since", usage: disk(900, 0), known: same, want: []string{"c lru"}, frees0: "ab"},
		{
			name: "it is once space was freed", usage: disk(850, 0), want: []string{"a lru"},
			known: record(func(r *gc.Fruitless) { r.AvailableBytes = 130 * mib }),
		},
		{
			name: "it is once the filesystem has grown", usage: disk(850, 0), want: []string{"a lru"},
			known: record(func(r *gc.Fruitless) { r.CapacityBytes = 900 * mib }),
		},
		{
			name: "it is once inodes were freed", usage: disk(850, 0), want: []string{"a lru"},
			known: record(func(r *gc.Fruitless) { r.InodesFree = 900 }),
		},
		{
			name: "it is once an image that was in use is not", usage: disk(850, 0), want: []string{"a lru"},
			known: record(func(r *gc.Fruitless) { r.Held = append(r.Held, gc.ImageKey{Runtime: "containerd", ID: "sha256:d"}) }),
		},
		{
			name: "it is once an image that was in use is gone", usage: disk(850, 0), want: []string{"a lru"},
			known: record(func(r *gc.Fruitless) {
				r.Held = append(r.Held, gc.ImageKey{Runtime: "containerd", ID: "sha256:gone"})
			}),
		},
		{
			name: "a runtime that does not answer is no change", usage: disk(850, 0), want: []string{"c lru"}, frees0: "ab",
			known: record(func(r *gc.Fruitless) { r.Held = append(r.Held, gc.ImageKey{Runtime: "docker", ID: "sha256:x"}) }),
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := gc.Plan(gc.Facts{Images: images(), Pods: pods, Filesystems: []gc.Usage{tt.usage}, Layers: tt.layers, Fruitless: tt.known},
				gc.DefaultPolicy(), now, tt.options)
			if got := removedImages(d); !slices.Equal(got, tt.want) {
				t.Errorf("Plan() removes %v, want %v", got, tt.want)
			}
			for _, img := range d.Images {
				if img.Reason == gc.FreesNothing && (img.Detail == "" || !strings.Contains(tt.frees0, img.ID[len("sha256:"):])) {
					t.Errorf("Plan() keeps %s, reason %s, %q, want only %q to free nothing, and why", img.ID, img.Reason, img.Detail, tt.frees0)
				}
			}
			if outdated := tt.known != nil && len(tt.options.StartedSpace) == 0 && !tt.options.AllUnused && tt.frees0 == ""; outdated != (len(d.Outdated) > 0) {
				t.Errorf("Plan() finds the records of %q outdated, want one: %v", d.Outdated, outdated)
			}
		})
	}
}

func TestFrees(t *testing.T) {
	bytes, inodes := gc.FilesystemDecision{BytesToFree: 1}, gc.FilesystemDecision{InodesToFree: 1}
	tests := []struct {
		name            string
		lacking         gc.FilesystemDecision
		estimate, freed gc.Gain
		want            bool
	}{
		{"nothing", bytes, gc.Gain{Bytes: 100}, gc.Gain{}, false},
		{"a manifest of a few KiB", bytes, gc.Gain{Bytes: 40 * mib}, gc.Gain{Bytes: 20 << 10, Inodes: 5}, false},
		{"just less than a tenth", bytes, gc.Gain{Bytes: 1000}, gc.Gain{Bytes: 99}, false},
		{"a tenth", bytes, gc.Gain{Bytes: 1000}, gc.Gain{Bytes: 100}, true},
		{"nothing of an image without a size", bytes, gc.Gain{}, gc.Gain{}, false},
		{"inodes where bytes lack", bytes, gc.Gain{Bytes: 1000, Inodes: 10}, gc.Gain{Inodes: 10}, false},
		{"inodes where inodes lack", inodes, gc.Gain{Bytes: 1000, Inodes: 10}, gc.Gain{Inodes: 1}, true},
		{"bytes where inodes lack", inodes, gc.Gain{Bytes: 1000, Inodes: 10}, gc.Gain{Bytes: 1000}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := gc.Frees(tt.lacking, tt.estimate, tt.freed); got != tt.want {
				t.Errorf("Frees() = %v, want %v", got, tt.want)
			}
		})
	}
}

// share generates layers for the images of generated facts. Containers hold some of them.
func share(r interface{ IntN(int) int }, f *gc.Facts) {
	for i := range 1 + r.IntN(40) {
		l := runtime.Layer{Runtime: "containerd", Bytes: uint64(r.IntN(200)) * mib, Inodes: uint64(r.IntN(50))}
		for k := range f.Images {
			if img := &f.Images[k]; img.Runtime == l.Runtime && r.IntN(4) == 0 {
				l.Images = append(l.Images, img.ID)
			}
		}
		if r.IntN(6) == 0 {
			l.Users = []string{fmt.Sprintf("c%d-0", i)}
		}
		f.Layers = append(f.Layers, l)
	}
}

// checkSharing computes what a plan frees from the layers alone.
func checkSharing(t *testing.T, f gc.Facts, d gc.Decisions) {
	t.Helper()
	gone := make(map[string]bool)
	chosen, candidates := make(map[string]bool), make(map[string]bool)
	for _, img := range d.Images {
		gone[img.ID] = img.Action == gc.Remove
		candidates[img.ID] = img.Unused()
		chosen[img.ID] = img.Reason == gc.LRU
	}
	for _, c := range d.Containers {
		gone[c.ID] = c.Action == gc.Remove
	}
	var freed, booked uint64
	useful := make(map[string]bool)
	for _, l := range f.Layers {
		free, could := len(l.Images) > 0, len(l.Images) > 0
		for _, holder := range slices.Concat(l.Images, l.Users) {
			free = free && gone[holder]
			could = could && (gone[holder] || candidates[holder])
		}
		for _, id := range l.Images {
			useful[id] = useful[id] || could && l.Bytes+l.Inodes > 0
		}
		if free {
			freed += l.Bytes
		}
	}
	layered := make(map[string]bool)
	for _, l := range f.Layers {
		for _, id := range l.Images {
			layered[id] = true
		}
	}
	for _, img := range d.Images {
		if layered[img.ID] && img.Action == gc.Remove {
			booked += img.Gain.Bytes
		}
		if chosen[img.ID] && layered[img.ID] && !useful[img.ID] {
			t.Errorf("Plan() removes %s to free space although all its layers stay", img.ID)
		}
	}
	if booked > freed {
		t.Errorf("Plan() estimates that %d bytes become free, want no more than layers without a holder: %d", booked, freed)
	}
}
