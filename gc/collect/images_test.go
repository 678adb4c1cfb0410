package collect_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"hostler.io/hostler/gc"
	"hostler.io/hostler/gc/runs"
	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/runtimetest"
)

func TestCollectStopsAtTheLowThreshold(t *testing.T) {
	tests := []struct {
		name  string
		setup func(*host)
		want  []string
	}{
		{"room enough", func(h *host) { h.fill(84) }, []string{}},
		{"one image too many", func(h *host) { h.fill(90) }, []string{"a lru"}},
		{"several images too many", func(h *host) { h.fill(100) }, []string{"a lru", "b lru"}},
		{"sizes that promise too much", func(h *host) {
			// The reported size is 10 times what the removal frees.
			for _, name := range []string{"x", "y", "z"} {
				h.fake.AddImage(runtimetest.ImageSpec{
					ID: "sha256:" + name, Digests: []string{"q.io/" + name + "@sha256:" + name}, ReportedBytes: 500 * mib,
					Layers: []runtimetest.Layer{{ID: name, Bytes: 50 * mib}},
				})
			}
			h.observe()
			time.Sleep(time.Hour)
			h.fake.RunPod(runtimetest.PodSpec{Name: "p", Containers: []runtimetest.ContainerSpec{
				{Name: "1", Image: "sha256:a"}, {Name: "2", Image: "sha256:b"}, {Name: "3", Image: "sha256:c"},
			}})
			h.fill(94)
		}, []string{"x lru", "y lru", "z lru"}},
		{"sizes that promise too little", func(h *host) {
			h.fake.AddImage(runtimetest.ImageSpec{
				ID: "sha256:big", Digests: []string{"q.io/big@sha256:big"}, ReportedBytes: mib, CreatedAt: time.Now().Add(-100 * time.Hour),
				Layers: []runtimetest.Layer{{ID: "big", Bytes: 300 * mib}},
			})
			h.fill(95)
		}, []string{"big lru"}},
		{"inodes are short, bytes are not", func(h *host) {
			h.meter.change = func(u *gc.Usage) {
				u.Inodes = 10_000
				u.InodesFree = 10_000 - min(10_000, 6_500+(1_000_000-h.fake.Usage().InodesFree))
			}
		}, []string{"a lru"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHost(t, runtimetest.Options{})
				for _, name := range []string{"a", "b", "c"} {
					h.pull(name)
				}
				tt.setup(h)
				report := h.collect(h.images(), gc.Options{})
				if got := removed(report); !slices.Equal(got, tt.want) {
					t.Errorf("Collect() removed %v, want %v (ended: %s)", got, tt.want, report.Ended)
				}
				want := "low threshold reached"
				if len(tt.want) == 0 {
					want = "no space is needed"
				}
				if report.Ended != want {
					t.Errorf("Collect() ended because %q, want %q; warnings %q", report.Ended, want, report.Warnings)
				}
			})
		})
	}
}

func TestCollectMeasuresWhatItFreed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, runtimetest.Options{FreesAfter: 300 * time.Millisecond})
		base := runtimetest.Layer{ID: "base", Bytes: 80 * mib, Inodes: 10}
		for _, name := range []string{"a", "b", "c"} {
			h.pull(name, base, runtimetest.Layer{ID: name, Bytes: 20 * mib, Inodes: 5})
		}
		h.fill(85)
		r := h.collect(h.images(), gc.Options{})
		if got, want := removed(r), []string{"a lru", "b lru", "c lru"}; !slices.Equal(got, want) {
			t.Errorf("Collect() removed %v, want %v", got, want)
		}
		if r.RequestedBytes != 50*mib || r.EstimatedBytes != 300*mib || r.FreedBytes != 140*mib || r.FreedInodes != 25 {
			t.Errorf("Collect() asked, estimated, freed = %d, %d, %d MiB, %d inodes, want 50, 300, 140, 25",
				r.RequestedBytes/mib, r.EstimatedBytes/mib, r.FreedBytes/mib, r.FreedInodes)
		}
		if want := []string{"/var/lib/fake (/dev/fake)"}; !slices.Equal(r.Filesystems, want) || !strings.Contains(h.log.String(), "filesystems=\"[/var/lib/fake (/dev/fake)]\"") {
			t.Errorf("Collect() names the filesystems %q, log %q, want %q in both", r.Filesystems, h.log.String(), want)
		}
		if h.meter.syncs < 3 {
			t.Errorf("Collect() synced %d times, want once after each removal", h.meter.syncs)
		}
	})
}

func TestCollectOnRequest(t *testing.T) {
	tests := []struct {
		name    string
		policy  func(*gc.ImagePolicy)
		options gc.Options
		want    []string
	}{
		{"all unused", nil, gc.Options{AllUnused: true}, []string{"a all-unused", "b all-unused", "c all-unused"}},
		{"down to a target", nil, gc.Options{TargetPercent: 35}, []string{"a lru", "b lru"}},
		{"past the maximum age", func(p *gc.ImagePolicy) { p.MaximumAge = 90 * time.Minute }, gc.Options{}, []string{"a max-age", "b max-age"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHost(t, runtimetest.Options{})
				for _, name := range []string{"a", "b", "c"} {
					h.pull(name)
				}
				h.fill(50)
				images := h.images()
				if tt.policy != nil {
					images = h.images(tt.policy)
				}
				var steps []runs.Progress
				r, err := images.Collect(t.Context(), tt.options, func(p runs.Progress) { steps = append(steps, p) })
				if got := removed(r); err != nil || !slices.Equal(got, tt.want) {
					t.Errorf("Collect() removed %v, %v, want %v", got, err, tt.want)
				}
				if want := uint64(len(tt.want)) * 100 * mib; r.FreedBytes != want {
					t.Errorf("Collect() freed %d bytes, want %d", r.FreedBytes, want)
				}
				for i, step := range steps {
					if step.Done != i+1 || step.Total < len(tt.want) || step.Action != gc.Remove {
						t.Errorf("Collect() step %d = %+v, want it numbered and removed", i, step)
					}
				}
				if len(steps) != len(tt.want) {
					t.Errorf("Collect() showed %d steps, want %d", len(steps), len(tt.want))
				}
			})
		})
	}
}

func TestCollectRefusesContradictingOptions(t *testing.T) {
	h := newHost(t, runtimetest.Options{})
	if _, err := h.images().Collect(t.Context(), gc.Options{TargetPercent: 101}, nil); err == nil {
		t.Error("Collect(target 101) = nil, want an error")
	}
}

// A container starts after the plan was made, so the query before the removal keeps the image.
func TestCollectQueriesAgainBeforeEachRemoval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, runtimetest.Options{})
		for _, name := range []string{"a", "b", "c"} {
			h.pull(name)
		}
		h.fill(50)
		used := false
		r, err := h.images().Collect(t.Context(), gc.Options{AllUnused: true}, func(p runs.Progress) {
			if !used { // after the first removal, before the second
				used = true
				h.fake.RunPod(runtimetest.PodSpec{Name: "late", Containers: []runtimetest.ContainerSpec{{Name: "x", Image: "quay.io/org/b:1"}}})
			}
		})
		if got, want := removed(r), []string{"a all-unused", "c all-unused"}; err != nil || !slices.Equal(got, want) {
			t.Errorf("Collect() removed %v, %v, want %v", got, err, want)
		}
		if r.Kept[gc.InUse] != 1 || len(r.Errors) != 0 || len(h.fake.RemovedInUse()) != 0 {
			t.Errorf("Collect() kept %v, errors %q, removed in use %v, want one in use and no harm", r.Kept, r.Errors, h.fake.RemovedInUse())
		}
	})
}

func TestCollectKeepsWhatArrivesMeanwhile(t *testing.T) {
	tests := []struct {
		name  string
		event runtime.Event
	}{
		{"pulled or tagged again", runtime.Event{Type: runtime.ImageAdded, Image: "quay.io/org/b:1"}},
		{"pulled again, named by ID", runtime.Event{Type: runtime.ImageAdded, Image: "sha256:b"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHost(t, runtimetest.Options{})
				for _, name := range []string{"a", "b"} {
					h.pull(name)
				}
				tt.event.Runtime = h.fake.Name()
				r, err := h.images().Collect(t.Context(), gc.Options{AllUnused: true}, func(runs.Progress) { h.tracker.Notify(tt.event) })
				if got, want := removed(r), []string{"a all-unused"}; err != nil || !slices.Equal(got, want) || r.Kept[gc.TooYoung] != 1 {
					t.Errorf("Collect() removed %v, kept %v, %v, want %v and one too young", got, r.Kept, err, want)
				}
			})
		})
	}
}

func TestCollectEndsAfterTwoRemovalsWithoutGain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, runtimetest.Options{})
		shared := runtimetest.Layer{ID: "shared", Bytes: 100 * mib}
		for _, name := range []string{"a", "b", "c", "d"} {
			h.pull(name, shared)
		}
		h.fill(95)
		start := time.Now()
		r := h.collect(h.images(), gc.Options{})
		if got, want := removed(r), []string{"a lru", "b lru"}; !slices.Equal(got, want) {
			t.Errorf("Collect() removed %v, want %v", got, want)
		}
		if !strings.Contains(r.Ended, "freed nothing") || r.FreedBytes != 0 {
			t.Errorf("Collect() ended %q with %d bytes freed, want it to say that nothing was freed", r.Ended, r.FreedBytes)
		}
		if len(r.Warnings) != 1 {
			t.Fatalf("Collect() warnings = %q, want one", r.Warnings)
		}
		for _, part := range []string{"/var/lib/fake", "/dev/fake", "95% full", "80%", "85%", "freed nothing"} {
			if !strings.Contains(r.Warnings[0], part) {
				t.Errorf("Collect() warning = %q, want %q in it", r.Warnings[0], part)
			}
		}
		if took := time.Since(start); took > 10*time.Second {
			t.Errorf("Collect() waited %s for room, want a bounded wait", took)
		}
	})
}

func TestCollectSaysWhyNothingCouldGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, runtimetest.Options{})
		h.pull("a")
		h.fake.RunPod(runtimetest.PodSpec{Name: "p", Containers: []runtimetest.ContainerSpec{{Name: "c", Image: "sha256:a"}}})
		h.fake.AddImage(runtimetest.ImageSpec{ID: "sha256:pin", Pinned: true})
		h.fake.AddImage(runtimetest.ImageSpec{ID: "sha256:new", Digests: []string{"q.io/new@sha256:new"}})
		h.fill(90)
		r := h.collect(h.images(), gc.Options{})
		if len(r.Removed) != 0 || len(r.Warnings) != 1 {
			t.Fatalf("Collect() removed %v, warnings %q, want nothing and one warning", removed(r), r.Warnings)
		}
		for _, part := range []string{"1 in-use", "1 pinned", "1 too-young", "nothing more to remove"} {
			if !strings.Contains(r.Warnings[0], part) {
				t.Errorf("Collect() warning = %q, want %q in it", r.Warnings[0], part)
			}
		}
		if strings.Count(h.log.String(), "level=WARN") != 1 {
			t.Errorf("log = %s, want one warning", h.log.String())
		}
		h.collect(h.images(), gc.Options{})
	})
}

func TestCollectSkipsAFailingRemoval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, runtimetest.Options{})
		for _, name := range []string{"a", "b", "c"} {
			h.pull(name)
		}
		h.fill(95)
		fault := h.fake.Inject(runtimetest.RemoveImage, runtimetest.Fault{Err: errors.New("snapshot is busy"), Subject: "sha256:a"})
		images := h.images()
		r := h.collect(images, gc.Options{})
		if got, want := removed(r), []string{"b lru", "c lru"}; !slices.Equal(got, want) {
			t.Errorf("Collect() removed %v, want %v", got, want)
		}
		if len(r.Errors) != 1 || !strings.Contains(r.Errors[0], "snapshot is busy") || !strings.Contains(r.Errors[0], "RemoveImage sha256:a") {
			t.Errorf("Collect() errors = %q, want one with image and cause", r.Errors)
		}
		fault.Release()
		h.fill(95)
		if got, want := removed(h.collect(images, gc.Options{})), []string{"a lru"}; !slices.Equal(got, want) {
			t.Errorf("Collect() again removed %v, want %v", got, want)
		}
	})
}

func TestCollectHeedsARefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, runtimetest.Options{})
		h.pull("a")
		h.fake.Inject(runtimetest.RemoveImage, runtimetest.Fault{Err: runtime.ErrInUse})
		r := h.collect(h.images(), gc.Options{AllUnused: true})
		if len(r.Removed) != 0 || r.Kept[gc.InUse] != 1 || len(r.Errors) != 0 {
			t.Errorf("Collect() = %+v, want the image kept as in use, and no error", r)
		}
	})
}
