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
	"hostler.io/hostler/gc/runs"
	"hostler.io/hostler/gc/survey"
	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/runtimetest"
)

// CRI allows the creation of a container while its image is removed. The window is measured and a
// broken container is reported.
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

// If the check after a run fails, that must be reported.
func TestCollectReportsThatItCannotCheckRemovedImages(t *testing.T) {
	tests := []struct {
		name string
		harm func(h *host, cancel func())
		want []string
	}{
		{"a runtime that lists no pods any more", func(h *host, _ func()) {
			h.fake.Inject(runtimetest.Pods, runtimetest.Fault{Err: runtime.ErrUnavailable})
		}, []string{"fake", "1 removed images"}},
		{"a run that is cancelled still measures", func(h *host, cancel func()) {
			h.fake.RunPod(runtimetest.PodSpec{Name: "late", Containers: []runtimetest.ContainerSpec{{Name: "unlucky", Image: "sha256:a"}}})
			cancel()
		}, []string{"unlucky", "pull it again"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHost(t, runtimetest.Options{FreesAfter: time.Hour}) // the measurement takes long
				h.pull("a")
				pause := h.fake.Inject(runtimetest.RemoveImageWindow, runtimetest.Fault{Delay: 3 * time.Second, Times: 1})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				go func() {
					<-pause.Reached()
					tt.harm(h, func() { time.AfterFunc(4*time.Second, cancel) })
				}()
				r, err := h.images().Collect(ctx, gc.Options{AllUnused: true}, nil)
				reported := strings.Join(r.Errors, "; ")
				for _, want := range tt.want {
					if err != nil || !strings.Contains(reported, want) {
						t.Errorf("Collect() = %v, errors %q, want %q in it", err, reported, want)
					}
				}
			})
		})
	}
}

func TestCollectStopsWhenTheRuntimeFails(t *testing.T) {
	tests := []struct {
		name  string
		op    runtimetest.Op
		fault runtimetest.Fault
		want  int // number of removals
		more  int // parallel removals besides the failed one
	}{
		{"it is gone from the start", runtimetest.Every, runtimetest.Fault{Err: runtime.ErrUnavailable}, 0, 0},
		{"it hangs from the start", runtimetest.Images, runtimetest.Fault{Hang: true}, 0, 0},
		{"it does not report its sandbox image", runtimetest.Info, runtimetest.Fault{Err: errors.New("boom")}, 0, 0},
		{"it answers nonsense", runtimetest.Pods, runtimetest.Fault{Err: runtime.ErrInvalidAnswer}, 0, 0},
		{"it hangs in a removal", runtimetest.RemoveImage, runtimetest.Fault{Hang: true, Subject: "sha256:b"}, 1, 1},
		{"it goes during a removal", runtimetest.RemoveImage, runtimetest.Fault{Delay: time.Second, Err: runtime.ErrUnavailable, Subject: "sha256:b"}, 1, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHost(t, runtimetest.Options{})
				for _, name := range []string{"a", "b", "c", "d", "e"} {
					h.pull(name)
				}
				fault := h.fake.Inject(tt.op, tt.fault)
				go func() { // every call fails from then on
					select {
					case <-fault.Reached():
						h.fake.Inject(runtimetest.Every, runtimetest.Fault{Err: runtime.ErrUnavailable})
					case <-t.Context().Done():
					}
				}()
				r := h.collect(h.images(), gc.Options{AllUnused: true})
				if len(r.Removed) < tt.want || len(r.Removed) > tt.want+tt.more || len(r.Errors) != 1 || !strings.Contains(r.Errors[0], "runtime fake") {
					t.Errorf("Collect() removed %v, errors %q, want %d and one that names the runtime", removed(r), r.Errors, tt.want)
				}
				if calls := h.fake.Calls(runtimetest.RemoveImage); len(calls) > tt.want+tt.more+1 {
					t.Errorf("Collect() went on with %d removals after the failure", len(calls))
				}
				if time.Duration(0) == r.Duration.Duration && tt.fault.Hang {
					t.Error("Collect() took no time over a hang")
				}
			})
		})
	}
}

// If the query before a removal fails, nothing is removed.
func TestCollectRemovesNothingWithoutAQuery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, runtimetest.Options{})
		h.pull("a")
		h.pull("b")
		r, err := h.images().Collect(t.Context(), gc.Options{AllUnused: true}, func(runs.Progress) {
			h.fake.Inject(runtimetest.Pods, runtimetest.Fault{Err: runtime.ErrTooLarge})
		})
		if got, want := removed(r), []string{"a all-unused"}; err != nil || !slices.Equal(got, want) || len(r.Errors) != 1 {
			t.Errorf("Collect() removed %v, errors %q, %v, want %v and one error", got, r.Errors, err, want)
		}
		if r.Ended != "a runtime returned an error" {
			t.Errorf("Collect() ended %q, want the error blamed", r.Ended)
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

// noFilesystems is a runtime that does not report its image filesystem.
type noFilesystems struct{ *runtimetest.Fake }

func (noFilesystems) ImageFilesystems(context.Context) ([]runtime.Filesystem, error) { return nil, nil }

func TestCollectWithoutAFilesystem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, runtimetest.Options{})
		h.pull("a")
		h.survey.Runtimes = func() []survey.Runtime { return []survey.Runtime{noFilesystems{h.fake}} }
		images := h.images(func(p *gc.ImagePolicy) { p.MaximumAge = time.Minute * 3 })
		r := h.collect(images, gc.Options{})
		if len(r.Removed) != 0 || r.Kept[gc.UnknownUsage] != 1 || len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], "runtime fake reports no image filesystem") {
			t.Errorf("Collect() removed %v, kept %v, warnings %q, want nothing and one warning", removed(r), r.Kept, r.Warnings)
		}
		if r := h.collect(images, gc.Options{AllUnused: true}); len(r.Removed) != 1 {
			t.Errorf("Collect(all unused) removed %v, want the images that a person requested", removed(r))
		}
		// A runtime without images needs none.
		if r := h.collect(images, gc.Options{}); len(r.Warnings) != 0 {
			t.Errorf("Collect() where there are no images warns of %q, want nothing", r.Warnings)
		}
	})
}

// If one runtime does not answer, space is still freed on the other.
func TestCollectGoesOnWithTheRuntimeThatAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, other := newHost(t, runtimetest.Options{}), newHost(t, runtimetest.Options{Name: "other"})
		h.pull("a")
		other.tracker = h.tracker
		other.pull("b")
		h.survey.Runtimes = func() []survey.Runtime { return []survey.Runtime{h.fake, other.fake} }
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
		r, err := h.images().Collect(ctx, gc.Options{AllUnused: true}, func(runs.Progress) { cancel() })
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
		images, err := collect.NewImages(gc.DefaultPolicy().Images, collect.First{}, options)
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
		if strings.Count(got, "level=WARN") != 1 || strings.Count(got, "no longer impaired") != 1 {
			t.Errorf("log of three failures = %q, want their begin and end", got)
		}
		h.pull("a")
		h.collect(images, gc.Options{AllUnused: true})
		if got := h.log.String(); !strings.Contains(got, "image removed") || !strings.Contains(got, "quay.io/org/a:1") {
			t.Errorf("log of a removal = %q, want the image named", got)
		}
	})
}

// Inodes are lacking and the collection for bytes is disabled, so nothing is removed to free bytes.
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

// One image would be enough, but the removal of the oldest fails, so the next one is removed.
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

// A removal whose answer was lost may have succeeded.
func TestCollectMeasuresAfterAnAnswerThatWasLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, runtimetest.Options{})
		for _, name := range []string{"a", "b"} { // they use twice the size that the runtime reports
			h.fake.AddImage(runtimetest.ImageSpec{
				ID: "sha256:" + name, Tags: []string{"quay.io/org/" + name + ":1"}, Digests: []string{"q.io/" + name + "@sha256:" + name}, ReportedBytes: 50 * mib,
				Layers: []runtimetest.Layer{{ID: name, Bytes: 100 * mib}},
			})
			h.observe()
			time.Sleep(time.Hour)
		}
		h.fill(90)
		h.fake.Inject(runtimetest.RemoveImage, runtimetest.Fault{Err: runtime.ErrUnavailable, LosesReply: true, Times: 1})
		r := h.collect(h.images(), gc.Options{})
		if got := removed(r); len(got) > 0 || r.Ended != "low threshold reached" || r.FreedBytes != 100*mib {
			t.Errorf("Collect() removed %v, ended %q, %d MiB freed, want no image after the one that is gone, and its 100 MiB", got, r.Ended, r.FreedBytes/mib)
		}
		if reported := strings.Join(r.Errors, "; "); !strings.Contains(reported, "RemoveImage sha256:a") {
			t.Errorf("Collect() errors = %q, want the removal whose answer was lost", reported)
		}
	})
}
