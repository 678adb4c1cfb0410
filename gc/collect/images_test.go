package collect_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"hostler.io/hostler/gc"
	"hostler.io/hostler/gc/collect"
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
			// The runtime reports 10 times what removing them frees.
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
				if len(tt.want) > 0 && report.Ended != "low threshold reached" {
					t.Errorf("Collect() ended because %q, want the low threshold reached; warnings %q", report.Ended, report.Warnings)
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
		if h.meter.syncs < 3 {
			t.Errorf("Collect() synced %d times, want once after each removal", h.meter.syncs)
		}
	})
}

func TestCollectAsked(t *testing.T) {
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
				var steps []collect.Progress
				r, err := images.Collect(t.Context(), tt.options, func(p collect.Progress) { steps = append(steps, p) })
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

// Between plan and removal a container starts: asked again, the image stays.
func TestCollectAsksAgainBeforeEachRemoval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, runtimetest.Options{})
		for _, name := range []string{"a", "b", "c"} {
			h.pull(name)
		}
		h.fill(50)
		used := false
		r, err := h.images().Collect(t.Context(), gc.Options{AllUnused: true}, func(p collect.Progress) {
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
				r, err := h.images().Collect(t.Context(), gc.Options{AllUnused: true}, func(collect.Progress) { h.tracker.Notify(tt.event) })
				if got, want := removed(r), []string{"a all-unused"}; err != nil || !slices.Equal(got, want) || r.Kept[gc.TooYoung] != 1 {
					t.Errorf("Collect() removed %v, kept %v, %v, want %v and one too young", got, r.Kept, err, want)
				}
			})
		})
	}
}

// What CRI leaves open: a container created while the runtime removes. The
// window is measured and the harm said.
func TestCollectMeasuresTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, runtimetest.Options{})
		h.pull("a")
		pause := h.fake.Inject(runtimetest.RemoveImageWindow, runtimetest.Fault{Delay: 3 * time.Second, Times: 1})
		go func() {
			<-pause.Reached()
			h.fake.RunPod(runtimetest.PodSpec{Name: "late", Containers: []runtimetest.ContainerSpec{{Name: "unlucky", Image: "sha256:a"}}})
		}()
		r := h.collect(h.images(), gc.Options{AllUnused: true})
		if got := r.LongestWindow.Duration; got < 3*time.Second || got > 4*time.Second {
			t.Errorf("Collect() window = %s, want 3s", got)
		}
		if len(r.Errors) != 1 || !strings.Contains(r.Errors[0], "unlucky") || !strings.Contains(r.Errors[0], "pull it again") {
			t.Errorf("Collect() errors = %q, want one that names the container", r.Errors)
		}
	})
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
		for _, part := range []string{"/var/lib/fake", "/dev/fake", "95% full", "80%", "85%", "freed 0 of", "freed nothing"} {
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
		if len(r.Errors) != 1 || !strings.Contains(r.Errors[0], "snapshot is busy") || !strings.Contains(r.Errors[0], "quay.io/org/a:1") {
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

func TestCollectStopsWhenTheRuntimeFails(t *testing.T) {
	tests := []struct {
		name  string
		op    runtimetest.Op
		fault runtimetest.Fault
		want  int // removals
	}{
		// The second and the third image go at once.
		{"it is gone from the start", runtimetest.Every, runtimetest.Fault{Err: runtime.ErrUnavailable}, 0},
		{"it hangs from the start", runtimetest.Images, runtimetest.Fault{Hang: true}, 0},
		{"it does not tell its sandbox image", runtimetest.Info, runtimetest.Fault{Err: errors.New("boom")}, 0},
		{"it answers nonsense", runtimetest.Pods, runtimetest.Fault{Err: runtime.ErrNonsense}, 0},
		{"it hangs in a removal", runtimetest.RemoveImage, runtimetest.Fault{Hang: true, Subject: "sha256:b"}, 2},
		{"it goes during a removal", runtimetest.RemoveImage, runtimetest.Fault{Delay: time.Second, Err: runtime.ErrUnavailable, Subject: "sha256:b"}, 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHost(t, runtimetest.Options{})
				for _, name := range []string{"a", "b", "c", "d", "e"} {
					h.pull(name)
				}
				fault := h.fake.Inject(tt.op, tt.fault)
				go func() { // from then on nothing works
					select {
					case <-fault.Reached():
						h.fake.Inject(runtimetest.Every, runtimetest.Fault{Err: runtime.ErrUnavailable})
					case <-t.Context().Done():
					}
				}()
				r := h.collect(h.images(), gc.Options{AllUnused: true})
				if len(r.Removed) != tt.want || len(r.Errors) != 1 || !strings.Contains(r.Errors[0], "runtime fake") {
					t.Errorf("Collect() removed %v, errors %q, want %d and one that names the runtime", removed(r), r.Errors, tt.want)
				}
				if calls := h.fake.Calls(runtimetest.RemoveImage); len(calls) > tt.want+1 {
					t.Errorf("Collect() went on with %d removals after the failure", len(calls))
				}
				if time.Duration(0) == r.Duration.Duration && tt.fault.Hang {
					t.Error("Collect() took no time over a hang")
				}
			})
		})
	}
}

// The question before a removal fails: without an answer nothing is removed.
func TestCollectRemovesNothingUnasked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, runtimetest.Options{})
		h.pull("a")
		h.pull("b")
		r, err := h.images().Collect(t.Context(), gc.Options{AllUnused: true}, func(collect.Progress) {
			h.fake.Inject(runtimetest.Pods, runtimetest.Fault{Err: runtime.ErrTooLarge})
		})
		if got, want := removed(r), []string{"a all-unused"}; err != nil || !slices.Equal(got, want) || len(r.Errors) != 1 {
			t.Errorf("Collect() removed %v, errors %q, %v, want %v and one error", got, r.Errors, err, want)
		}
		if r.Ended != "a runtime does not answer" {
			t.Errorf("Collect() ended %q, want the runtime blamed", r.Ended)
		}
	})
}

func TestCollectWithoutUsableFigures(t *testing.T) {
	tests := []struct {
		name  string
		spoil func(*meter)
		want  string
	}{
		{"capacity 0", func(m *meter) { m.change = func(u *gc.Usage) { u.CapacityBytes, u.AvailableBytes = 0, 0 } }, "capacity is 0"},
		{"a filesystem that hangs", func(m *meter) { m.hang = true }, "usage unknown"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHost(t, runtimetest.Options{})
				h.pull("a")
				h.fill(99)
				tt.spoil(h.meter)
				r := h.collect(h.images(), gc.Options{})
				if len(r.Removed) != 0 || len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], tt.want) || !strings.Contains(r.Warnings[0], "/var/lib/fake") {
					t.Errorf("Collect() removed %v, warnings %q, want nothing and one warning with %q", removed(r), r.Warnings, tt.want)
				}
			})
		})
	}
}

// nameless is a runtime that does not say where it keeps images.
type nameless struct{ *runtimetest.Fake }

func (nameless) ImageFilesystems(context.Context) ([]runtime.Filesystem, error) { return nil, nil }

func TestCollectWithoutAFilesystem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, runtimetest.Options{})
		h.pull("a")
		h.survey.Runtimes = func() []collect.Runtime { return []collect.Runtime{nameless{h.fake}} }
		images := h.images(func(p *gc.ImagePolicy) { p.MaximumAge = time.Minute * 3 })
		r := h.collect(images, gc.Options{})
		if len(r.Removed) != 0 || r.Kept[gc.UnknownUsage] != 1 || len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], "runtime fake names no image filesystem") {
			t.Errorf("Collect() removed %v, kept %v, warnings %q, want nothing and one warning", removed(r), r.Kept, r.Warnings)
		}
		if r := h.collect(images, gc.Options{AllUnused: true}); len(r.Removed) != 1 {
			t.Errorf("Collect(all unused) removed %v, want what a person asked for", removed(r))
		}
	})
}

// Two runtimes: what one does not answer does not keep the other from room.
func TestCollectGoesOnWithTheRuntimeThatAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, other := newHost(t, runtimetest.Options{}), newHost(t, runtimetest.Options{Name: "other"})
		h.pull("a")
		other.tracker = h.tracker
		other.pull("b")
		h.survey.Runtimes = func() []collect.Runtime { return []collect.Runtime{h.fake, other.fake} }
		h.fake.Inject(runtimetest.Images, runtimetest.Fault{Hang: true})
		r := h.collect(h.images(), gc.Options{AllUnused: true})
		if got, want := removed(r), []string{"b all-unused"}; !slices.Equal(got, want) || len(r.Errors) != 1 {
			t.Errorf("Collect() removed %v, errors %q, want %v and one error", got, r.Errors, want)
		}
	})
}

func TestCollectCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, runtimetest.Options{})
		for _, name := range []string{"a", "b", "c"} {
			h.pull(name)
		}
		ctx, cancel := context.WithCancel(t.Context())
		r, err := h.images().Collect(ctx, gc.Options{AllUnused: true}, func(collect.Progress) { cancel() })
		if got, want := removed(r), []string{"a all-unused"}; err != nil || !slices.Equal(got, want) {
			t.Errorf("Collect() removed %v, %v, want %v", got, err, want)
		}
		if r.Ended != "cancelled" || r.FreedBytes != 100*mib {
			t.Errorf("Collect() ended %q with %d bytes freed, want cancelled and what was freed until then", r.Ended, r.FreedBytes)
		}
	})
}

func TestCollectIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, runtimetest.Options{CallTimeout: time.Hour})
		h.pull("a")
		h.pull("b")
		h.fake.Inject(runtimetest.RemoveImage, runtimetest.Fault{Delay: 40 * time.Second})
		options := h.options()
		options.RunLimit = time.Minute
		images, err := collect.NewImages(gc.DefaultPolicy().Images, options)
		if err != nil {
			t.Fatal(err)
		}
		r := h.collect(images, gc.Options{AllUnused: true})
		if got := r.Duration.Duration; got > 65*time.Second || len(r.Removed) != 1 || r.Ended != "time limit reached" {
			t.Errorf("Collect() took %s, removed %v, ended %q, want a minute, one, and the limit named", got, removed(r), r.Ended)
		}
	})
}

func TestCollectLogsOnlyWhatHappens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, runtimetest.Options{})
		images := h.images()
		h.collect(images, gc.Options{})
		if got := h.log.String(); got != "" {
			t.Errorf("log of a run that did nothing = %q, want silence", got)
		}
		fault := h.fake.Inject(runtimetest.Images, runtimetest.Fault{Err: runtime.ErrUnavailable})
		for range 3 {
			h.collect(images, gc.Options{})
		}
		fault.Release()
		h.collect(images, gc.Options{})
		got := h.log.String()
		if strings.Count(got, "level=WARN") != 1 || strings.Count(got, "no longer hindered") != 1 {
			t.Errorf("log of three failures = %q, want their begin and end", got)
		}
		h.pull("a")
		h.collect(images, gc.Options{AllUnused: true})
		if got := h.log.String(); !strings.Contains(got, "image removed") || !strings.Contains(got, "quay.io/org/a:1") {
			t.Errorf("log of a removal = %q, want the image named", got)
		}
	})
}

// Inodes are short and collection for space is off: no byte is to be made room for.
func TestCollectFreesOnlyWhatIsShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, runtimetest.Options{})
		for _, name := range []string{"a", "b", "c"} {
			h.pull(name)
		}
		h.meter.change = func(u *gc.Usage) {
			u.Inodes = 10_000
			u.InodesFree = 10_000 - min(10_000, 6_500+(1_000_000-h.fake.Usage().InodesFree))
		}
		h.fill(99)
		report := h.collect(h.images(func(p *gc.ImagePolicy) { p.HighPercent = gc.ThresholdOff }), gc.Options{})
		if got, want := removed(report), []string{"a lru"}; !slices.Equal(got, want) || report.RequestedBytes != 0 {
			t.Errorf("Collect() removed %v for %d bytes and %d inodes, want %v for inodes alone", got, report.RequestedBytes, report.RequestedInodes, want)
		}
	})
}

func TestCollectEndsWhenTheFiguresAreLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, runtimetest.Options{})
		for _, name := range []string{"a", "b", "c"} {
			h.pull(name)
		}
		h.fill(100)
		h.meter.change = func(u *gc.Usage) {
			if images, _ := h.fake.Images(t.Context()); len(images) < 3 {
				u.CapacityBytes, u.AvailableBytes = 0, 0
			}
		}
		r := h.collect(h.images(), gc.Options{})
		if got, want := removed(r), []string{"a lru"}; !slices.Equal(got, want) || strings.Contains(r.Ended, "reached") {
			t.Errorf("Collect() removed %v and ended because %q, want %v and no threshold reached", got, r.Ended, want)
		}
	})
}

// One image would be enough, and the oldest does not go: the next one has to.
func TestCollectGoesOnPastAnImageThatStays(t *testing.T) {
	for name, fault := range map[string]runtimetest.Fault{
		"refused": {Err: runtime.ErrInUse}, "broken": {Err: errors.New("snapshot is busy")}, "hanging": {Hang: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHost(t, runtimetest.Options{})
				for _, name := range []string{"a", "b", "c"} {
					h.pull(name)
				}
				h.fill(90)
				fault.Subject = "sha256:a"
				h.fake.Inject(runtimetest.RemoveImage, fault)
				r := h.collect(h.images(), gc.Options{})
				if got, want := removed(r), []string{"b lru"}; !slices.Equal(got, want) || r.Ended != "low threshold reached" {
					t.Errorf("Collect() removed %v and ended because %q, want %v down to the low threshold", got, r.Ended, want)
				}
			})
		})
	}
}
