package agent

import (
	"testing"
	"time"

	"hostler.io/hostler/agent/config"
	"hostler.io/hostler/gc/runs"
)

// A loop that now runs less often must not count as stuck.
func TestALoopHasTheReloadedIntervalAsItsPatience(t *testing.T) {
	r := newRig(t)
	a := r.build(t)
	next := a.config()
	next.ImageGC.Interval = config.Duration(2 * time.Hour)
	next.ContainerGC.Interval = config.Duration(2 * time.Hour)
	r.next = next
	for _, name := range []string{"image-gc", "container-gc"} {
		named(t, a, name).Heartbeat(nil)
	}
	if _, changed, _, err := a.serving.reloader.applyFiles(); err != nil || len(changed) != 2 {
		t.Fatalf("applyFiles() = %v, %v, want both intervals", changed, err)
	}
	for _, name := range []string{"image-gc", "container-gc"} {
		if l := named(t, a, name); l.Stuck(time.Now().Add(2*time.Hour)) || !l.Stuck(time.Now().Add(3*time.Hour)) {
			t.Errorf("%s is stuck after 2h: %v, after 3h: %v, want only the latter", name, l.Stuck(time.Now().Add(2*time.Hour)), l.Stuck(time.Now().Add(3*time.Hour)))
		}
	}
}

// A collector may wait for the other collector and for two requested runs.
func TestACollectorIsGivenTimeToWaitForItsTurn(t *testing.T) {
	a := newRig(t).build(t)
	cfg := a.config()
	for name, interval := range map[string]config.Duration{"image-gc": cfg.ImageGC.Interval, "container-gc": cfg.ContainerGC.Interval} {
		named(t, a, name).Heartbeat(nil)
		if patience := time.Duration(interval) + 4*runs.DefaultRunLimit; named(t, a, name).Stuck(time.Now().Add(patience)) {
			t.Errorf("%s is stuck after %s, want it waited for", name, patience)
		}
	}
}
