package collect_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"hostler.io/hostler/gc"
	"hostler.io/hostler/gc/runs"
	"hostler.io/hostler/gc/survey"
	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/runtimetest"
)

// weigher is a meter that reports what fills the disk.
type weigher struct {
	*meter
	asked atomic.Int32
}

func (w *weigher) Folders(_ context.Context, fs runtime.Filesystem, byInodes bool) ([]gc.Folder, error) {
	w.asked.Add(1)
	folders := []gc.Folder{{Filesystem: fs.Mountpoint, Path: "/var/lib/fake/leftover", SizeBytes: 7 * mib, Inodes: 3}}
	if fs.Path == "/var/lib/other" { // next to the other, so that both are read
		folders = append([]gc.Folder{{Filesystem: fs.Mountpoint, Path: fs.Path + "/layers", SizeBytes: 9 * mib, Inodes: 2}}, folders...)
	}
	return folders, nil
}

// The remaining time is different for each image.
func TestYoungImagesAreCountedWithoutTheirTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, runtimetest.Options{})
		for _, name := range []string{"a", "b"} {
			h.pull(name)
		}
		h.fill(99)
		r := h.collect(h.images(func(p *gc.ImagePolicy) { p.MinimumAge = 24 * time.Hour }), gc.Options{})
		if len(r.Holders) != 1 || r.Holders[0].Reason != gc.TooYoung || r.Holders[0].Images != 2 || len(r.Holders[0].By) > 0 {
			t.Errorf("Collect() holders = %+v, want both images as too young, and no times", r.Holders)
		}
	})
}

func TestCollectNamesWhatUsesTheSpace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, runtimetest.Options{})
		for _, name := range []string{"a", "b", "c", "d"} {
			h.pull(name)
		}
		h.fake.RunPod(runtimetest.PodSpec{Namespace: "shop", Name: "web", Containers: []runtimetest.ContainerSpec{{Name: "main", Image: "sha256:a"}}})
		w := &weigher{meter: h.meter}
		h.survey.Meter = w
		h.fill(99)
		images := h.images(func(p *gc.ImagePolicy) { p.Keep, _ = gc.ParsePatterns([]string{"*/b:1"}) })
		late := false
		r, err := images.Collect(t.Context(), gc.Options{}, func(runs.Progress) {
			if !late { // c was removed, d is next
				late = true
				h.fake.RunPod(runtimetest.PodSpec{Name: "late", Containers: []runtimetest.ContainerSpec{{Name: "x", Image: "sha256:d"}}})
			}
		})
		if err != nil || len(r.Holders) != 2 || len(r.Folders) != 1 || r.Folders[0].Path != "/var/lib/fake/leftover" {
			t.Fatalf("Collect() holders = %+v, folders = %+v, %v, want two and one", r.Holders, r.Folders, err)
		}
		used, kept := r.Holders[0], r.Holders[1]
		if used.Reason != gc.InUse || used.Images != 2 || used.SizeBytes != 200*mib || !slices.Contains(used.By, "container shop/web/main (Running)") {
			t.Errorf("Collect() holders = %+v, want both images in use, and the containers that use them", used)
		}
		if kept.Reason != gc.Protected || kept.Images != 1 || len(kept.By) != 1 || kept.By[0] != "pattern */b:1" {
			t.Errorf("Collect() holders = %+v, want the pattern named", kept)
		}
		if !strings.Contains(r.Warnings[0], "shop/web/main") || !strings.Contains(r.Warnings[0], "/var/lib/fake/leftover (7.0 MiB, 3 inodes)") {
			t.Errorf("Collect() warning = %q, want container and folder in it", r.Warnings[0])
		}

		// A requested run reports the current state; the loop measures once per hour.
		stop := run(t, images)
		time.Sleep(21 * time.Minute)
		if asked := w.asked.Load(); asked != 1 {
			t.Errorf("Run() measured folders %d times in 20 minutes, want the measurements reused", asked-1)
		}
		h.collect(images, gc.Options{})
		time.Sleep(2 * time.Hour)
		if asked := w.asked.Load(); asked < 3 || asked > 5 {
			t.Errorf("Run() measured folders %d times in two hours more, want about two and once for a person", asked-1)
		}
		stop()
	})
}

// blind is a weigher that cannot read the folder of the first runtime.
type blind struct{ *weigher }

func (b blind) Folders(ctx context.Context, fs runtime.Filesystem, byInodes bool) ([]gc.Folder, error) {
	if fs.Path != "/var/lib/other" {
		return nil, errors.New("permission denied")
	}
	return b.weigher.Folders(ctx, fs, byInodes)
}

func TestCollectNamesFoldersFromWhereverTheyCanBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, runtimetest.Options{})
		other := runtimetest.NewFake(runtimetest.Options{Name: "other", Path: "/var/lib/other", Mountpoint: "/var/lib/fake", Device: "/dev/fake"})
		h.survey.Meter = blind{&weigher{meter: h.meter}}
		h.survey.Runtimes = func() []survey.Runtime { return []survey.Runtime{h.fake, other} }
		h.fill(99)
		r, err := h.images().Collect(t.Context(), gc.Options{}, nil)
		if err != nil || len(r.Folders) != 2 || r.Folders[0].Path != "/var/lib/other/layers" || r.Folders[1].Path != "/var/lib/fake/leftover" {
			t.Errorf("Collect() names the folders %+v, %v, want both that the other runtime sees", r.Folders, err)
		}
	})
}

// The named folders are what fills the filesystem now. They are measured again after a change.
// Without a change, the text has the age of the measurement.
func TestCollectNamesWhatFillsTheFilesystemNow(t *testing.T) {
	tests := []struct {
		name   string
		change func(h *host)
		looks  int32
		age    string // in the warning; empty if either is allowed
	}{
		{"nothing changes", func(*host) {}, 1, "15m0s ago"},
		{"more is written", func(h *host) { h.fill(95) }, 2, "on it:"},
		{"it was not short in between", func(h *host) {
			h.fill(50)
			time.Sleep(10 * time.Minute)
			h.fill(90)
		}, 2, "on it:"},
		{"an hour passes", func(*host) { time.Sleep(time.Hour) }, 2, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHost(t, runtimetest.Options{})
				w := &weigher{meter: h.meter}
				h.survey.Meter = w
				h.fill(90)
				images := h.images()
				stop := run(t, images)
				time.Sleep(12 * time.Minute)
				tt.change(h)
				time.Sleep(5 * time.Minute)
				stop()
				reports := h.seen()
				text := reports[len(reports)-1].Warnings[0]
				if got := w.asked.Load(); got != tt.looks || !strings.Contains(text, tt.age) {
					t.Errorf("Run() measured folders %d times and warns %q, want %d times, and %q", got, text, tt.looks, tt.age)
				}
			})
		})
	}
}

// owner is a runtime that reports the owners of space.
type owner struct{ *runtimetest.Fake }

func (owner) OwnedSpace(context.Context) ([]runtime.Owned, error) {
	return []runtime.Owned{
		{Folder: "/var/lib/fake/snapshots/7", Container: "c1", By: "container c1"},
		{Folder: "/var/lib/fake/snapshots/8", Container: "c2", By: "container c2 in containerd's namespace default"},
		{Bytes: 50 * mib, By: "images in containerd's namespace default"},
	}, nil
}

// full is a meter of a disk that several things fill.
type full struct{ *meter }

func (full) Folders(context.Context, runtime.Filesystem, bool) ([]gc.Folder, error) {
	var folders []gc.Folder
	for i, path := range []string{"/var/log/pods/shop_web_uid-1/main", "/var/lib/fake/snapshots/7/fs", "/var/lib/fake/snapshots/8", "/root", "/var/lib/fake/snapshots/77"} {
		folders = append(folders, gc.Folder{Path: path, SizeBytes: uint64(200-i*10) * mib, Inodes: 1})
	}
	return folders, nil
}

func TestCollectNamesTheOwnersOfFolders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, runtimetest.Options{})
		h.pull("a")
		h.fake.RunPod(runtimetest.PodSpec{Namespace: "shop", Name: "cache", Containers: []runtimetest.ContainerSpec{{ID: "c1", Name: "main", Image: "sha256:a"}}})
		h.survey.Meter = full{h.meter}
		h.survey.Runtimes = func() []survey.Runtime { return []survey.Runtime{owner{h.fake}} }
		h.fill(99)
		r := h.collect(h.images(), gc.Options{})
		for _, want := range []string{
			"/var/log/pods/shop_web_uid-1/main (200.0 MiB, 1 inodes, log of pod shop/web)",
			"/var/lib/fake/snapshots/7/fs (190.0 MiB, 1 inodes, written by container shop/cache/main)",
			"/var/lib/fake/snapshots/8 (180.0 MiB, 1 inodes, written by container c2 in containerd's namespace default)",
			"/root (170.0 MiB, 1 inodes)", "/var/lib/fake/snapshots/77 (160.0 MiB, 1 inodes)", "images in containerd's namespace default (50.0 MiB)",
		} {
			if !strings.Contains(r.Warnings[0], want) {
				t.Errorf("Collect() warning = %q, want %q in it", r.Warnings[0], want)
			}
		}
	})
}

// Scripts see from the exit code that too little was freed.
func TestCollectNamesTheFilesystemsThatStayTooFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, runtimetest.Options{})
		h.pull("a")
		h.fake.RunPod(runtimetest.PodSpec{Name: "web", Containers: []runtimetest.ContainerSpec{{Name: "main", Image: "sha256:a"}}})
		h.fill(80)
		for name, c := range map[string]struct {
			options gc.Options
			want    []string
		}{
			"a threshold that is not passed": {gc.Options{}, nil},
			"a target below the usage":       {gc.Options{TargetPercent: 70}, []string{"/var/lib/fake"}},
			"a target that is reached":       {gc.Options{TargetPercent: 90}, nil},
			"all that is unused":             {gc.Options{AllUnused: true}, nil},
		} {
			if r := h.collect(h.images(), c.options); !slices.Equal(r.Short, c.want) {
				t.Errorf("%s: Collect() leaves %q short, want %q", name, r.Short, c.want)
			}
		}
		h.fill(95)
		if r := h.collect(h.images(), gc.Options{AllUnused: true}); !slices.Equal(r.Short, []string{"/var/lib/fake"}) {
			t.Errorf("Collect() of all that is unused above the high threshold leaves %q short, want it named", r.Short)
		}
	})
}
