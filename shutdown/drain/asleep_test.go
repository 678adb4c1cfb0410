package drain_test

import (
	"testing"
	"time"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/runtimetest"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/shutdown/plan"
)

// If a runtime is not running and must not be started, its pods cannot be stopped. That must not
// take time from other pods.
func TestARuntimeThatMustNotBeStartedCostsNoTime(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("dns", plan.CriticalPriority)
		podman := runtimetest.NewFake(runtimetest.Options{Name: "podman", NoSandboxes: true})
		podman.AddImage(runtimetest.ImageSpec{ID: "image"})
		podman.RunPod(runtimetest.PodSpec{ID: "web", Name: "web", Containers: []runtimetest.ContainerSpec{{ID: "web", Name: "web", Image: "image"}}})
		set, err := runtime.NewSet(w.fake, podman)
		if err != nil {
			t.Fatal(err)
		}
		w.roster.Runtime = set
		if _, err := w.roster.List(t.Context()); err != nil {
			t.Fatal(err)
		}
		podman.Inject(runtimetest.Every, runtimetest.Fault{Err: runtime.ErrNotRunning})
		r, took := w.run(t.Context())
		w.expect(r, false, map[string]journal.Outcome{"web": journal.Left, "dns": journal.Stopped})
		w.expectSignals("dns0", "TERM@0s")
		if took > time.Second {
			t.Errorf("Run() took %v, want no time for what is impossible", took)
		}
	})
}
