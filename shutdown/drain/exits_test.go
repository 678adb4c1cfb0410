package drain_test

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/runtimetest"
	"hostler.io/hostler/shutdown/journal"
)

// autoRemoving removes containers when they end. StopContainer returns how they ended.
type autoRemoving struct {
	*runtimetest.Fake
	code int32
}

func (r autoRemoving) StopContainer(ctx context.Context, c runtime.Container, grace time.Duration) error {
	if err := r.Fake.StopContainer(ctx, c, grace); err != nil {
		return err
	}
	runtime.ReportExit(ctx, r.code)
	return r.RemoveContainer(ctx, c)
}

func TestTheExitCodeOfARemovedContainerIsRecorded(t *testing.T) {
	for code, want := range map[int32]corev1.PodPhase{0: corev1.PodSucceeded, 3: corev1.PodFailed} {
		inWorld(t, func(t *testing.T, w *world) {
			w.roster.Runtime = autoRemoving{w.fake, code}
			w.pod("brief", 0, runtimetest.ContainerSpec{EndsAfter: time.Second})
			r, _ := w.run(t.Context())
			w.expect(r, true, map[string]journal.Outcome{"brief": journal.Stopped})
			if got := r.PodStatus(r.Pods[0]); got.Phase != want {
				t.Errorf("PodStatus() = %+v, want %s", got, want)
			}
		})
	}
}
