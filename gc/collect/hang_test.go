package collect_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"hostler.io/hostler/gc"
	"hostler.io/hostler/gc/survey"
	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/runtimetest"
)

// stuck is a runtime whose removals of some images and containers never return. Other calls
// succeed.
type stuck struct{ *runtimetest.Fake }

func (s stuck) RemoveImage(ctx context.Context, img runtime.Image) error {
	if strings.Contains(img.ID, "stuck") {
		<-ctx.Done()
		return ctx.Err()
	}
	return s.Fake.RemoveImage(ctx, img)
}

func (s stuck) RemoveContainer(ctx context.Context, c runtime.Container) error {
	if strings.Contains(c.ID, "stuck") {
		<-ctx.Done()
		return ctx.Err()
	}
	return s.Fake.RemoveContainer(ctx, c)
}

// These objects are the first of every run. If the run waited the full time for each, it would not
// reach the others.
func TestRemovalsThatHangLeaveTimeForOthers(t *testing.T) {
	const hanging, others = 12, 3
	name := func(i int) string {
		if i < hanging {
			return fmt.Sprintf("stuck%02d", i)
		}
		return fmt.Sprintf("fine%02d", i)
	}
	t.Run("images", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := newHost(t, runtimetest.Options{CapacityBytes: 10_000 * mib})
			h.survey.Runtimes = func() []survey.Runtime { return []survey.Runtime{stuck{h.fake}} }
			for i := range hanging + others {
				h.pull(name(i))
			}
			h.fill(83) // the low threshold needs the removal of three images
			r := h.collect(h.images(), gc.Options{TargetPercent: 80})
			if len(r.Removed) != others || len(r.Errors) != hanging || r.Ended != "low threshold reached" {
				t.Errorf("Collect() removed %v in %v, ended %q, errors %.3q, want the %d that go and an error for each of the others", removed(r), r.Duration, r.Ended, r.Errors, others)
			}
		})
	})
	t.Run("containers", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := newHost(t, runtimetest.Options{})
			h.survey.Runtimes = func() []survey.Runtime { return []survey.Runtime{stuck{h.fake}} }
			h.fake.AddImage(runtimetest.ImageSpec{ID: "sha256:a"})
			pod := runtimetest.PodSpec{ID: "p", Name: "p"}
			for i := range hanging + others + 1 {
				at := time.Now().Add(time.Duration(i) * time.Second)
				pod.Containers = append(pod.Containers, runtimetest.ContainerSpec{
					ID: name(i), Name: "job", Image: "sha256:a", State: runtime.Exited, CreatedAt: at, FinishedAt: at,
				})
			}
			h.fake.RunPod(pod)
			time.Sleep(time.Hour)
			r, err := h.containers().Collect(t.Context(), gc.Options{}, nil)
			if err != nil || len(r.Removed) != others || len(r.Errors) != hanging || r.Ended != "nothing more to remove" {
				t.Errorf("Collect() removed %v in %v, %v, ended %q, errors %.3q, want the %d that go and an error for each of the others", removedContainers(r), r.Duration, err, r.Ended, r.Errors, others)
			}
		})
	})
}

// A slow removal is not limited: only one that used up its time shortens the limit of the next
// ones.
func TestASlowRemovalIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, runtimetest.Options{CallTimeout: time.Hour})
		for i := range 4 {
			h.pull(fmt.Sprint("slow", i))
		}
		h.fake.Inject(runtimetest.RemoveImage, runtimetest.Fault{Delay: 110 * time.Second})
		if r := h.collect(h.images(), gc.Options{AllUnused: true}); len(r.Removed) != 4 || len(r.Errors) != 0 {
			t.Errorf("Collect() removed %v, errors %q, want all", removed(r), r.Errors)
		}
	})
}
