package collect_test

import (
	"context"
	"errors"
	"slices"
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

// run starts the collector's loop, and stops it at the end of the test's bubble.
func run(t *testing.T, c interface{ Run(context.Context) error }) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run() = %v, want %v", err, context.Canceled)
		}
	}
}

// triggers returns the triggers of the runs so far.
func (h *host) triggers() []string {
	got := []string{}
	for _, r := range h.seen() {
		got = append(got, r.Trigger)
	}
	return got
}

func TestRunCollectsAtOnceThenOnItsInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, runtimetest.Options{})
		h.pull("a")
		h.fill(90)
		images := h.images()
		stop := run(t, images)
		time.Sleep(time.Minute)
		if last, ok := images.Last(); !ok || len(last.Removed) != 1 || last.Trigger != "start" {
			t.Errorf("Last() = %+v, %v, want a first run that removed one image", last, ok)
		}
		time.Sleep(10 * time.Minute)
		images.Trigger("DiskPressure")
		synctest.Wait()
		if got, want := h.triggers(), []string{"start", "interval", "interval", "DiskPressure"}; !slices.Equal(got, want) {
			t.Errorf("Run() ran for %v, want %v", got, want)
		}
		images.SetInterval(time.Minute)
		time.Sleep(90 * time.Second)
		if got := len(h.triggers()); got != 5 {
			t.Errorf("Run() with a shorter interval ran %d times, want 5", got)
		}
		stop()
	})
}

func TestANewIntervalStartsNoRunAtOnce(t *testing.T) {
	tests := []struct {
		name     string
		at       time.Duration // after the first run; the next one is due after 5m
		interval time.Duration
		want     time.Duration
	}{
		{"a shorter one that has passed since the last run", 2 * time.Minute, time.Minute, 3 * time.Minute},
		{"a shorter one that would end after the next run was due", 270 * time.Second, time.Minute, 5 * time.Minute},
		{"a longer one", 2 * time.Minute, 10 * time.Minute, 10 * time.Minute},
		{"the same", 2 * time.Minute, 5 * time.Minute, 5 * time.Minute},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHost(t, runtimetest.Options{})
				images := h.images()
				stop := run(t, images)
				time.Sleep(tt.at)
				images.SetInterval(tt.interval)
				time.Sleep(9 * time.Minute)
				seen := h.seen()
				if len(seen) < 2 || seen[1].StartedAt.Sub(seen[0].StartedAt) != tt.want {
					t.Errorf("Run() ran %v, want a second run %s after the first", h.triggers(), tt.want)
				}
				stop()
			})
		})
	}
}

func TestARunWithoutAnAnswerIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, runtimetest.Options{})
		fault := h.fake.Inject(runtimetest.Every, runtimetest.Fault{Err: runtime.ErrUnavailable})
		images := h.images()
		images.Retry("RuntimeReady") // there was no run yet
		stop := run(t, images)
		synctest.Wait()
		fault.Release()
		for range 2 { // the second has nothing to retry
			images.Retry("RuntimeReady")
			synctest.Wait()
		}
		if got, want := h.triggers(), []string{"start", "RuntimeReady"}; !slices.Equal(got, want) {
			t.Errorf("Run() ran for %v, want %v", got, want)
		}
		if last, _ := images.Last(); len(last.Errors) != 0 {
			t.Errorf("Last().Errors = %v, want none", last.Errors)
		}
		stop()
	})
}

// With the search for runtimes, the first runtime is found shortly after the run at the start.
func TestARunIsRetriedForANewRuntime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, runtimetest.Options{})
		var found []survey.Runtime
		h.survey.Runtimes = func() []survey.Runtime { return found }
		images := h.images()
		stop := run(t, images)
		synctest.Wait()
		found = []survey.Runtime{h.fake}
		for range 2 { // the second finds no new runtime
			images.Retry("RuntimeReady")
			synctest.Wait()
		}
		if got, want := h.triggers(), []string{"start", "RuntimeReady"}; !slices.Equal(got, want) {
			t.Errorf("Run() ran for %v, want %v", got, want)
		}
		stop()
	})
}

func TestRunRetriesEarlierWithoutAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, runtimetest.Options{})
		fault := h.fake.Inject(runtimetest.Every, runtimetest.Fault{Err: runtime.ErrUnavailable})
		stop := run(t, h.images())
		time.Sleep(30 * time.Second)
		fault.Release()
		h.pull("a") // takes an hour
		seen := h.seen()
		if pause := seen[1].StartedAt.Sub(seen[0].StartedAt); len(seen) < 13 || len(seen[1].Errors) != 0 || pause > 61*time.Second {
			t.Errorf("Run() ran %d times, the second time %s after the first, want it a minute after", len(seen), pause)
		}
		stop()
	})
}

func TestRunLeavesAloneWhatIsCollectedOnRequestOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, runtimetest.Options{})
		h.pull("a")
		h.fill(90)
		options := h.options()
		options.LeaveAlone = func() []string { return []string{"fake"} }
		images, err := collect.NewImages(gc.DefaultPolicy().Images, collect.First{}, options)
		if err != nil {
			t.Fatal(err)
		}
		stop := run(t, images)
		time.Sleep(time.Minute)
		if last, _ := images.Last(); len(last.Removed) != 0 || last.Kept[gc.NotManaged] != 1 {
			t.Errorf("Run() removed %v, kept %v, want the image left alone", removed(last), last.Kept)
		}
		if r := h.collect(images, gc.Options{}); len(r.Removed) != 1 {
			t.Errorf("Collect() removed %v, want what a person requested", removed(r))
		}
		stop()
	})
}

// If a runtime appears while a run waits for its turn, the run does not remove its objects.
func TestRunExcludesRuntimesThatAppearedWhileItWaited(t *testing.T) {
	type collector interface {
		Run(ctx context.Context) error
		Last() (runs.Report, bool)
	}
	for name, of := range map[string]func(runs.Options) (collector, error){
		"images": func(o runs.Options) (collector, error) {
			return collect.NewImages(gc.DefaultPolicy().Images, collect.First{}, o)
		},
		"containers": func(o runs.Options) (collector, error) {
			return collect.NewContainers(gc.DefaultPolicy().Containers, o)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, _ := deadHost(t)
				h.pull("unused")
				h.fill(90)
				options := h.options()
				var excluded []string
				options.LeaveAlone = func() []string { return excluded }
				c, err := of(options)
				if err != nil {
					t.Fatal(err)
				}
				turn := options.Turn
				turn <- struct{}{}
				stop := run(t, c)
				synctest.Wait() // until it waits for its turn
				excluded = []string{"fake"}
				<-turn
				time.Sleep(time.Minute)
				if last, ran := c.Last(); !ran || len(last.Removed) != 0 || last.Kept[gc.NotManaged] == 0 {
					t.Errorf("Run() removed %v, kept %v, want all left alone", removed(last), last.Kept)
				}
				stop()
			})
		})
	}
}

func TestRunsNeverOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, runtimetest.Options{})
		for _, name := range []string{"a", "b", "c"} {
			h.pull(name)
		}
		h.fill(90)
		h.fake.Inject(runtimetest.RemoveImage, runtimetest.Fault{Delay: 5 * time.Second})
		images := h.images()
		stop := run(t, images)
		time.Sleep(time.Second) // the loop's run is in its first removal

		impatient, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := images.Collect(impatient, gc.Options{}, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Collect() of someone impatient = %v, want %v", err, context.DeadlineExceeded)
		}
		var steps []runs.Progress
		r, err := images.Collect(t.Context(), gc.Options{AllUnused: true}, func(p runs.Progress) { steps = append(steps, p) })
		if got, want := removed(r), []string{"b all-unused", "c all-unused"}; err != nil || !slices.Equal(got, want) {
			t.Errorf("Collect() after the loop's run removed %v, %v, want %v", got, err, want)
		}
		if len(steps) != 3 || !steps[0].Waiting || steps[1].Waiting || steps[2].Waiting {
			t.Errorf("Collect() reported %+v, want the wait before the removals", steps)
		}
		if first := h.seen()[0]; r.StartedAt.Before(first.StartedAt.Add(first.Duration.Duration)) {
			t.Errorf("Collect() began at %s, during a run from %s for %s", r.StartedAt, first.StartedAt, first.Duration.Duration)
		}
		stop()
	})
}

func TestNewCollectorsRefuseNonsense(t *testing.T) {
	h := newHost(t, runtimetest.Options{})
	good := h.options()
	for name, change := range map[string]func(*runs.Options){
		"no survey":            func(o *runs.Options) { o.Survey = nil },
		"an incomplete survey": func(o *runs.Options) { o.Survey = &survey.Survey{} },
		"no interval":          func(o *runs.Options) { o.Interval = 0 },
		"a negative limit":     func(o *runs.Options) { o.RunLimit = -1 },
		"no logger":            func(o *runs.Options) { o.Log = nil },
	} {
		o := good
		change(&o)
		if _, err := collect.NewImages(gc.DefaultPolicy().Images, collect.First{}, o); err == nil {
			t.Errorf("NewImages(%s) = nil, want an error", name)
		}
		if _, err := collect.NewContainers(gc.DefaultPolicy().Containers, o); err == nil {
			t.Errorf("NewContainers(%s) = nil, want an error", name)
		}
	}
	images, err := collect.NewImages(gc.DefaultPolicy().Images, collect.First{}, good)
	if err != nil {
		t.Fatal(err)
	}
	p := gc.DefaultPolicy().Images
	p.LowPercent = 50
	if images.SetPolicy(p); images.Policy().LowPercent != 50 {
		t.Errorf("SetPolicy() sets policy %+v, want it effective", images.Policy())
	}
	if _, err := collect.NewImages(gc.ImagePolicy{HighPercent: 10, LowPercent: 20}, collect.First{}, good); err == nil {
		t.Error("NewImages(low above high) = nil, want an error")
	}
	if _, err := collect.NewContainers(gc.ContainerPolicy{MaxContainers: -2}, good); err == nil {
		t.Error("NewContainers(total -2) = nil, want an error")
	}
}

// Both measure the same filesystem, so one must not count what the other freed.
func TestCollectorsOfOneSurveyTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, runtimetest.Options{})
		h.pull("a")
		h.fill(90)
		h.fake.Inject(runtimetest.RemoveImage, runtimetest.Fault{Delay: 5 * time.Second})
		dead, err := collect.NewContainers(gc.DefaultPolicy().Containers, h.options())
		if err != nil {
			t.Fatal(err)
		}
		stop := run(t, h.images())
		time.Sleep(time.Second) // the images' run is in its removal
		report, err := dead.Collect(t.Context(), gc.Options{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		images := h.seen()[0]
		if report.StartedAt.Before(images.StartedAt.Add(images.Duration.Duration)) {
			t.Errorf("Collect() of containers began at %s, during a run of images from %s for %s", report.StartedAt, images.StartedAt, images.Duration.Duration)
		}
		if images.FreedBytes == 0 || report.FreedBytes != 0 {
			t.Errorf("freed %d bytes of images and %d of containers, want all by the images", images.FreedBytes, report.FreedBytes)
		}
		stop()
	})
}
