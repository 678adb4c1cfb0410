package agent

import (
	"testing"
	"testing/synctest"
	"time"

	"hostler.io/hostler/agent/config"
)

// The watchdog must not take a loop for stuck that only runs more rarely now.
func TestAReloadedIntervalIsWaitedFor(t *testing.T) {
	a := newAgent(t)
	next := a.config()
	next.ImageGC.Interval = config.Duration(2 * time.Hour)
	next.ContainerGC.Interval = config.Duration(2 * time.Hour)
	a.options.Reload = func() (config.Config, error) { return next, nil }
	for _, name := range []string{"image-gc", "container-gc"} {
		a.loop(name).beat(nil)
	}
	if changed, err := a.takeUp(); err != nil || len(changed) != 2 {
		t.Fatalf("takeUp() = %v, %v, want both intervals", changed, err)
	}
	for _, name := range []string{"image-gc", "container-gc"} {
		if l := a.loop(name); l.stuck(time.Now().Add(2*time.Hour)) || !l.stuck(time.Now().Add(3*time.Hour)) {
			t.Errorf("%s is stuck after 2h: %v, after 3h: %v, want only the latter", name, l.stuck(time.Now().Add(2*time.Hour)), l.stuck(time.Now().Add(3*time.Hour)))
		}
	}
}

func TestAShorterPatienceCountsFromNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &loop{name: "image-gc", patience: 3 * time.Hour}
		l.beat(nil)
		time.Sleep(2 * time.Hour)
		l.allow(time.Hour)
		if l.stuck(time.Now()) || !l.stuck(time.Now().Add(61*time.Minute)) {
			t.Errorf("stuck() = %v now, %v in an hour, want only the latter", l.stuck(time.Now()), l.stuck(time.Now().Add(61*time.Minute)))
		}
	})
}
