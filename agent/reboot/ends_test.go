package reboot_test

import (
	"errors"
	"testing"
	"time"

	"hostler.io/hostler/agent/reboot"
	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controlplanetest"
)

// TestCriticalPodsStopRightBeforeTheCommand has critical pods that take a minute. The control plane may run in one of
// them: after the slot is confirmed, its answer is not needed.
func TestCriticalPodsStopRightBeforeTheCommand(t *testing.T) {
	for name, c := range map[string]struct {
		meanwhile func(m *machine)
		boots     int
	}{
		"nothing happens": {func(*machine) {}, 2},
		"the control plane is unreachable": {func(m *machine) {
			m.plane.Inject(controlplanetest.Any, controlplanetest.Fault{Err: controlplane.ErrUnavailable})
		}, 2},
		"the slot is released": {func(m *machine) { m.locked(func() { m.turn = reboot.Turn{Lost: true, Message: "by anna"} }) }, 1},
		"a person cancels":     {func(m *machine) { _, _ = m.Cancel("anna") }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			inMachine(t, func(m *machine) {
				m.critical = func() (time.Duration, error) { return time.Minute, nil }
				m.asked()
				m.passes(20 * time.Second)
				m.want(controlplane.RebootRebooting, "stopping critical pods")
				if _, commands := m.did(); commands > 0 {
					t.Error("the command runs before the critical pods have stopped")
				}
				c.meanwhile(m)
				m.passes(3 * time.Minute)
				m.plane.Heal()
				if _, commands := m.did(); m.boot != c.boots || commands != c.boots-1 {
					t.Errorf("%d boots after %d runs of the command, want %d boots", m.boot, commands, c.boots)
				}
				m.locked(func() { m.turn = reboot.Turn{Granted: true} })
				m.passes(time.Hour)
				m.want(controlplane.RebootDone, "")
				m.clean()
			})
		})
	}
}

// TestAHostIsUncordonedUntilThatIsStored has a Node that cannot be uncordoned at the end of an attempt, and an agent that is
// killed meanwhile, while the host waits for the next attempt or after its reboot.
func TestAHostIsUncordonedUntilThatIsStored(t *testing.T) {
	for name, ends := range map[string]func(m *machine){
		"a failed attempt": func(m *machine) { m.locked(func() { m.command = func() error { return errors.New("denied") } }) },
		"a cancelled one":  func(m *machine) { _, _ = m.Cancel("anna") },
	} {
		for kill := range 2 {
			inMachine(t, func(m *machine) {
				m.asked()
				m.locked(func() { m.uncordon = errors.New("read-only file system") })
				ends(m)
				m.passes(25 * time.Second)
				m.locked(func() {
					if m.cordoned != "hostler" {
						t.Errorf("%s: cordoned by %q, want that the attempt is over and the Node cordoned", name, m.cordoned)
					}
				})
				m.locked(func() { m.uncordon = nil })
				if kill == 1 {
					m.restart()
				}
				m.passes(15 * time.Second)
				m.clean()
			})
		}
	}
}
