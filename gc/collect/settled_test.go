package collect_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"hostler.io/hostler/gc"
	"hostler.io/hostler/gc/collect"
	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/runtimetest"
)

// Space that containers and old images use may be freed late. Until then it looks as if more images
// had to be removed.
func TestSpaceThatIsFreedLateIsAwaited(t *testing.T) {
	const late = 500 * time.Millisecond
	t.Run("of containers that went first", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := newHost(t, runtimetest.Options{FreesAfter: late})
			h.pull("a")
			h.pull("b")
			at := time.Now()
			h.fake.RunPod(runtimetest.PodSpec{Name: "p", Containers: []runtimetest.ContainerSpec{
				{ID: "old", Name: "web", Image: "sha256:a", State: runtime.Exited, CreatedAt: at, FinishedAt: at, WritableBytes: 200 * mib},
				{ID: "new", Name: "web", Image: "sha256:a"},
				{ID: "newer", Name: "web", Image: "sha256:a", State: runtime.Exited, CreatedAt: at.Add(time.Minute), FinishedAt: at.Add(time.Minute)},
			}})
			h.observe()
			time.Sleep(time.Hour)
			h.fill(90)
			images := h.imagesAfter(collect.First{Containers: h.containers(), Mine: func() bool { return true }})
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- images.Run(ctx) }()
			time.Sleep(time.Minute)
			cancel()
			<-done
			r := h.seen()[0]
			if got := removedContainers(r); len(got) != 1 || got[0] != "old" || r.Ended != "low threshold reached" || r.FreedBytes != 200*mib {
				t.Errorf("run removed %v, ended %q, freed %d MiB, want the container alone and 200 MiB", got, r.Ended, r.FreedBytes/mib)
			}
		})
	})
	t.Run("of images past the maximum age", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := newHost(t, runtimetest.Options{FreesAfter: late})
			h.pull("a")
			h.pull("b")
			time.Sleep(50 * time.Hour)
			h.pull("c")
			h.fill(90)
			r := h.collect(h.images(func(p *gc.ImagePolicy) { p.MaximumAge = 40 * time.Hour }), gc.Options{})
			if got := removed(r); len(got) != 2 || r.Ended != "low threshold reached" {
				t.Errorf("Collect() removed %v, ended %q, want the two that are too old", got, r.Ended)
			}
		})
	})
}

// Images past the maximum age are removed many at once, whatever they free. That does not tell what
// the removal of others frees.
func TestTheFirstImageForSpaceGoesAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, runtimetest.Options{CapacityBytes: 100_000 * mib, Inodes: 100_000_000})
		add := func(from, to int) {
			for i := from; i < to; i++ {
				h.fake.AddImage(runtimetest.ImageSpec{
					ID: fmt.Sprintf("sha256:i%d", i), Digests: []string{fmt.Sprintf("q.io/i@sha256:%d", i)}, ReportedBytes: 25 * mib,
					Layers: []runtimetest.Layer{{ID: fmt.Sprint(i), Bytes: 100 * mib}},
				})
			}
			h.observe()
			time.Sleep(time.Hour)
		}
		add(0, 50)
		time.Sleep(50 * time.Hour)
		add(50, 200)
		h.fill(86)
		r := h.collect(h.images(func(p *gc.ImagePolicy) { p.MaximumAge = 40 * time.Hour }), gc.Options{})
		if by := r.RemovedBy(); by[gc.MaxAge] != 50 || by[gc.LRU] != 10 {
			t.Errorf("Collect() removed %v, want the 50 that are too old and exactly the 10 more that it takes", by)
		}
	})
}
