package collect_test

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"hostler.io/hostler/gc"
	"hostler.io/hostler/gc/survey"
	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/runtimetest"
)

// A cancelled run does not wait for a removal, but the removal may have succeeded.
func TestACancelledRemovalIsVerified(t *testing.T) {
	tests := []struct {
		name  string
		user  string // a container that begins to use the image
		freed uint64
	}{
		{"what it freed is measured", "", 100 * mib},
		{"a container that came to use the image is named", "unlucky", 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHost(t, runtimetest.Options{FreesAfter: 500 * time.Millisecond})
				h.pull("a")
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				h.survey.Runtimes = func() []survey.Runtime { return []survey.Runtime{hasty{h.fake, tt.user, cancel}} }
				r, err := h.images().Collect(ctx, gc.Options{AllUnused: true}, nil)
				if err != nil || r.Ended != "cancelled" || len(r.Removed) != 0 || r.FreedBytes != tt.freed {
					t.Errorf("Collect() = %v, removed %v, ended %q, freed %d MiB, want no removal, cancelled, %d MiB", err, removed(r), r.Ended, r.FreedBytes/mib, tt.freed/mib)
				}
				if reported := strings.Join(r.Errors, "; "); (reported == "") != (tt.user == "") || !strings.Contains(reported, tt.user) {
					t.Errorf("Collect() errors = %q, want the container named if there is one", reported)
				}
			})
		})
	}
}

// hasty is a runtime that removes an image even if the caller has disconnected. A container may
// begin to use it.
type hasty struct {
	*runtimetest.Fake
	user  string
	leave func()
}

func (h hasty) RemoveImage(ctx context.Context, img runtime.Image) error {
	if h.user != "" {
		h.RunPod(runtimetest.PodSpec{Name: "late", Containers: []runtimetest.ContainerSpec{{Name: h.user, Image: img.ID}}})
	}
	err := h.Fake.RemoveImage(context.WithoutCancel(ctx), img)
	h.leave()
	return cmp.Or(err, ctx.Err())
}

// If the agent stops while a runtime lists its images, that is not a fault, and it is unknown
// whether earlier faults are over.
func TestAStopIsNoFault(t *testing.T) {
	for name, before := range map[string]error{"the first list": nil, "the list after one that failed": runtime.ErrUnavailable} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHost(t, runtimetest.Options{})
				h.pull("a")
				h.fill(90)
				slow := &sluggish{Fake: h.fake}
				if before != nil {
					slow.err.Store(&before)
				}
				h.survey.Runtimes = func() []survey.Runtime { return []survey.Runtime{slow} }
				stop := run(t, h.images())
				synctest.Wait()
				if before != nil { // repeated a minute later
					slow.err.Store(nil)
					time.Sleep(61 * time.Second)
				}
				stop()
				text := h.log.String()
				if strings.Contains(text, "canceled") || strings.Contains(text, "no longer") {
					t.Errorf("Run() logged %s, want nothing of its end", text)
				}
				if n := strings.Count(text, "collection impaired"); (n == 0) != (before == nil) {
					t.Errorf("Run() logged %s, want a fault only of before", text)
				}
				if r := h.seen()[len(h.seen())-1]; r.Err() != nil || len(r.Errors) != 0 || len(r.Warnings) != 0 {
					t.Errorf("Run() reported %v, %q, %q of the run that was cut off, want no fault", r.Err(), r.Errors, r.Warnings)
				}
			})
		})
	}
}

// sluggish is a runtime whose list of images fails or never returns.
type sluggish struct {
	*runtimetest.Fake
	err atomic.Pointer[error]
}

func (s *sluggish) Images(ctx context.Context) ([]runtime.Image, error) {
	if err := s.err.Load(); err != nil {
		return nil, *err
	}
	<-ctx.Done()
	return nil, fmt.Errorf("list images: %w", ctx.Err())
}
