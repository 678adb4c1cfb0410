package collect_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"hostler.io/hostler/gc"
	"hostler.io/hostler/gc/survey"
	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/runtimetest"
)

// stubborn is a runtime that reports the removal of some images but keeps them.
type stubborn struct {
	*runtimetest.Fake
	keeps func(id string) bool
}

func (s stubborn) RemoveImage(ctx context.Context, img runtime.Image) error {
	if s.keeps(img.ID) {
		return nil
	}
	return s.Fake.RemoveImage(ctx, img)
}

func TestCollectCountsOnlyImagesThatAreGone(t *testing.T) {
	for name, o := range map[string]gc.Options{"for space": {TargetPercent: 1}, "all unused": {AllUnused: true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHost(t, runtimetest.Options{})
				for _, name := range []string{"a", "b", "c"} {
					h.pull(name)
				}
				h.fill(50)
				rt := stubborn{h.fake, func(id string) bool { return id == "sha256:b" }}
				h.survey.Runtimes = func() []survey.Runtime { return []survey.Runtime{rt} }
				r := h.collect(h.images(), o)
				var got []string
				for _, removal := range r.Removed {
					got = append(got, removal.ID)
				}
				if !slices.Equal(got, []string{"sha256:a", "sha256:c"}) || r.EstimatedBytes != 200*mib {
					t.Errorf("Collect() counts %v, %d MiB, want the two that are gone", got, r.EstimatedBytes/mib)
				}
				if len(r.Errors) != 1 || !strings.Contains(r.Errors[0], "still lists it as quay.io/org/b:1") {
					t.Errorf("Collect() errors = %q, want one that names the image that stayed", r.Errors)
				}
			})
		})
	}
}

// If a tag moved after a container was created, it now refers to an unused image.
func TestCollectDecidesUseByTheImagesID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, runtimetest.Options{})
		const tag = "quay.io/org/app:1"
		for _, id := range []string{"old", "new"} {
			h.fake.AddImage(runtimetest.ImageSpec{ID: "sha256:" + id, Tags: []string{tag}, Digests: []string{"quay.io/org/app@sha256:" + id}})
			if id == "old" {
				h.fake.RunPod(runtimetest.PodSpec{Name: "p", Containers: []runtimetest.ContainerSpec{{Name: "c", Image: tag}}})
			}
			h.pull("after-" + id)
		}
		r := h.collect(h.images(), gc.Options{AllUnused: true})
		if got, want := removed(r), []string{"after-old all-unused", "after-new all-unused", "new all-unused"}; !slices.Equal(got, want) || len(h.fake.RemovedInUse()) > 0 {
			t.Errorf("Collect() removed %v, in use %v, want %v", got, h.fake.RemovedInUse(), want)
		}
	})
}
