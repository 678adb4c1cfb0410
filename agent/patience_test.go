package agent

import (
	"testing"
	"time"

	"hostler.io/hostler/agent/config"
)

// The watchdog must not take a loop for stuck that only runs more rarely now.
func TestAReloadedIntervalIsWaitedFor(t *testing.T) {
	a := newRig(t).build(t)
	next := a.config()
	next.ImageGC.Interval = config.Duration(2 * time.Hour)
	next.ContainerGC.Interval = config.Duration(2 * time.Hour)
	a.options.Reload = func() (config.Config, error) { return next, nil }
	for _, name := range []string{"image-gc", "container-gc"} {
		a.loops.Named(name).Beat(nil)
	}
	if changed, err := a.takeUp(); err != nil || len(changed) != 2 {
		t.Fatalf("takeUp() = %v, %v, want both intervals", changed, err)
	}
	for _, name := range []string{"image-gc", "container-gc"} {
		if l := a.loops.Named(name); l.Stuck(time.Now().Add(2*time.Hour)) || !l.Stuck(time.Now().Add(3*time.Hour)) {
			t.Errorf("%s is stuck after 2h: %v, after 3h: %v, want only the latter", name, l.Stuck(time.Now().Add(2*time.Hour)), l.Stuck(time.Now().Add(3*time.Hour)))
		}
	}
}
