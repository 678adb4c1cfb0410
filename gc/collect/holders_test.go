package collect_test

import (
	"context"
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

// weigher is a meter that knows what fills the disk.
type weigher struct {
	*meter
	asked atomic.Int32
}

func (w *weigher) Folders(_ context.Context, fs runtime.Filesystem, byInodes bool) ([]gc.Folder, error) {
	w.asked.Add(1)
	folders := []gc.Folder{{Filesystem: fs.Mountpoint, Path: "/var/lib/fake/leftover", SizeBytes: 7 * mib, Inodes: 3}}
	if fs.Path == "/var/lib/other" { // next to it, so that both are looked at
		folders = append([]gc.Folder{{Filesystem: fs.Mountpoint, Path: fs.Path + "/layers", SizeBytes: 9 * mib, Inodes: 2}}, folders...)
	}
	return folders, nil
}

func TestCollectNamesWhatHoldsTheRoom(t *testing.T) {
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
			if !late { // c is gone, d is next
				late = true
				h.fake.RunPod(runtimetest.PodSpec{Name: "late", Containers: []runtimetest.ContainerSpec{{Name: "x", Image: "sha256:d"}}})
			}
		})
		if err != nil || len(r.Holders) != 2 || len(r.Folders) != 1 || r.Folders[0].Path != "/var/lib/fake/leftover" {
			t.Fatalf("Collect() holders = %+v, folders = %+v, %v, want two and one", r.Holders, r.Folders, err)
		}
		used, kept := r.Holders[0], r.Holders[1]
		if used.Reason != gc.InUse || used.Images != 2 || used.SizeBytes != 200*mib || !slices.Contains(used.By, "container shop/web/main (Running)") {
			t.Errorf("Collect() holders = %+v, want both images in use, and by whom", used)
		}
		if kept.Reason != gc.Protected || kept.Images != 1 || len(kept.By) != 1 || kept.By[0] != "pattern */b:1" {
			t.Errorf("Collect() holders = %+v, want the pattern named", kept)
		}
		if !strings.Contains(r.Warnings[0], "shop/web/main") || !strings.Contains(r.Warnings[0], "/var/lib/fake/leftover (7.0 MiB, 3 inodes)") {
			t.Errorf("Collect() warning = %q, want container and folder in it", r.Warnings[0])
		}

		// A person is answered from what is there now; the loop looks once an hour.
		stop := run(t, images)
		time.Sleep(21 * time.Minute)
		if asked := w.asked.Load(); asked != 1 {
			t.Errorf("Run() looked at folders %d times in 20 minutes, want them remembered", asked-1)
		}
		h.collect(images, gc.Options{})
		time.Sleep(2 * time.Hour)
		if asked := w.asked.Load(); asked < 3 || asked > 5 {
			t.Errorf("Run() looked at folders %d times in two hours more, want about two and once for a person", asked-1)
		}
		stop()
	})
}

// A disk may be full of what another runtime keeps on it than the first one that names it.
func TestCollectNamesTheFoldersOfAllRuntimesOfAFilesystem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, runtimetest.Options{})
		other := runtimetest.NewFake(runtimetest.Options{Name: "other", Path: "/var/lib/other", Mountpoint: "/var/lib/fake", Device: "/dev/fake"})
		h.survey.Meter = &weigher{meter: h.meter}
		h.survey.Runtimes = func() []survey.Runtime { return []survey.Runtime{h.fake, other} }
		h.fill(99)
		r, err := h.images().Collect(t.Context(), gc.Options{}, nil)
		if err != nil || len(r.Folders) != 2 || r.Folders[0].Path != "/var/lib/other/layers" || r.Folders[1].Path != "/var/lib/fake/leftover" {
			t.Errorf("Collect() names the folders %+v, %v, want the larger one of the other runtime, then the one that both see", r.Folders, err)
		}
	})
}
