//go:build integration

package machine_test

import (
	"slices"
	"strings"
	"testing"

	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/test/machine"
)

// TestARuntimeIsAwayWhenTheAgentIsNew has an agent that never saw the runtime asked to close
// the house: what it cannot see it does not take for gone, and says so after the boot.
func TestARuntimeIsAwayWhenTheAgentIsNew(t *testing.T) {
	onBothDebians(t, machine.Container, func(t *testing.T, o machine.Options) {
		g := gracesOf(o.Bed)
		o.Config = g.config()
		m := machine.Boot(t, o)
		for _, story := range []struct {
			name  string
			known bool // which pods there are
			down  func() machine.Down
		}{
			{"before the shutdown", false, func() machine.Down {
				m.Run("systemctl stop containerd && systemctl restart hostler")
				return m.GoesDown("systemctl reboot")
			}},
			{"in the middle of it", true, func() machine.Down {
				return m.AwaitDown("a reboot without a runtime", func() error {
					m.Run("systemctl reboot")
					m.Eventually("web is asked to end", func() bool { return !m.Work().Boot(m.BootID()).Pod("web")[0].Term().IsZero() })
					m.Run("systemctl stop containerd; systemctl restart --no-block hostler; true")
					return nil
				})
			}},
		} {
			m.Deploy(machine.Pod{Name: "web", Containers: []machine.ContainerSpec{{Name: "main", EndsSlowly: g.regular() / 2}}}, machine.Pod{Name: "db", Critical: true})
			m.AwaitArmed()
			boot := m.BootID()
			story.down()
			last := m.LastShutdown()
			if last == nil || !strings.HasPrefix(last.BootID, boot) || last.Graceful || !strings.Contains(last.Error, "containerd") {
				t.Fatalf("LastShutdown() where the runtime went away %s = %+v, want one that was not graceful, and that names it", story.name, last)
			}
			if i := slices.IndexFunc(last.Pods, func(p journal.PodRecord) bool { return p.Name == "db" }); story.known && (i < 0 || last.Pods[i].Outcome == journal.Stopped) {
				t.Errorf("LastShutdown() where the runtime went away %s = %+v, want db in it, and not stopped: nobody has asked it", story.name, last)
			}
		}
	})
}
