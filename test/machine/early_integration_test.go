//go:build integration

package machine_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/test/machine"
)

// TestTheFirstSecond requests a shutdown within the first second after the agent's start, with and
// without a lock of an earlier process.
func TestTheFirstSecond(t *testing.T) {
	onDebian(t, machine.Debian13, func(t *testing.T, o machine.Options) {
		offsets := []time.Duration{0, 20 * time.Millisecond, 100 * time.Millisecond, 500 * time.Millisecond}
		if o.Bed == machine.VM {
			offsets = []time.Duration{0, time.Second}
		}
		o.Config = workloadConfig()
		m := machine.Boot(t, o)
		for _, birth := range []struct {
			how     string
			trigger journal.Trigger // empty: any
		}{
			// The service manager keeps the lock, so logind waits.
			{"systemctl restart --no-block hostler", journal.TriggerShutdown},
			// There is no lock, and logind may shut down before there is one. Until the agent is up, which
			// start waits for, it does not even handle SIGTERM: no program does in its first moments.
			{"systemctl stop hostler; systemctl start hostler", ""},
		} {
			for i, offset := range offsets {
				name := fmt.Sprintf("%d%s", i, strings.Fields(birth.how)[1])
				web, db := "web"+name, "db"+name
				m.Deploy(machine.Pod{Name: web}, machine.Pod{Name: db, Critical: true})
				boot := m.BootID()
				how := fmt.Sprintf("%s; sleep %g; systemctl reboot", birth.how, offset.Seconds())
				m.GoesDown(how)

				expectOrder(t, m, boot, web, db)
				last := m.LastShutdown()
				if last == nil || !last.Graceful || !strings.HasPrefix(last.BootID, boot) || len(last.Pods) != 2 || birth.trigger != "" && last.Trigger != birth.trigger {
					t.Errorf("`%s`: LastShutdown() = %+v, want a graceful one of two pods, in boot %s, by %q", how, last, boot, birth.trigger)
				}
				if last != nil && last.Trigger == journal.TriggerShutdown && last.Kind != "reboot" {
					t.Errorf("`%s`: LastShutdown() is of kind %q, want a reboot", how, last.Kind)
				}
			}
		}
	})
}

// TestAskedAgain requests a shutdown, and more of them while it is in progress. A person has
// cordoned the Node, which stays cordoned.
func TestAskedAgain(t *testing.T) {
	onDebian(t, machine.Debian12, func(t *testing.T, o machine.Options) {
		o.Config = workloadConfig()
		m := machine.Boot(t, o)
		m.Deploy(lingering("web", o.Bed), machine.Pod{Name: "db", Critical: true})
		m.Hostler("cordon")
		boot := m.BootID()
		down := m.AwaitDown("a reboot that is requested again", func() error {
			m.Run("systemctl reboot")
			m.Eventually("web is sent the stop signal", func() bool { return !m.Work().Pod("web")[0].Term().IsZero() })
			// systemd may refuse these while it waits.
			m.Run("systemctl reboot; shutdown -r now; systemctl reboot; true")
			return nil
		})
		if down.Off {
			t.Fatal("the machine is off, want it rebooted")
		}
		m.Eventually("the node is cordoned after the boot", func() bool {
			s, err := m.TryStatus()
			return err == nil && s.Node != nil && s.Node.Spec.Unschedulable
		})
		work := expectOrder(t, m, boot, "web", "db")
		last := expectRecord(t, m, boot, map[string]journal.Outcome{"web": journal.Stopped, "db": journal.Stopped})
		if term := work.Pod("web")[0].Term(); last.StartedAt.After(term) {
			t.Errorf("LastShutdown().StartedAt = %v, want the first announcement, before web got SIGTERM at %v", last.StartedAt, term)
		}
	})
}
