//go:build integration

package machine_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/test/machine"
)

// TestFourGroups shuts a machine down in four groups by priority. A pod is added when the first
// group has been sent the stop signal.
func TestFourGroups(t *testing.T) {
	onDebian(t, machine.Debian12, func(t *testing.T, o machine.Options) {
		const grace = 5 * time.Minute // of the pod that the test kills
		o.Config = fmt.Sprintf("shutdown:\n  byPriority: [{priority: 0, gracePeriod: %[1]v}, {priority: -100, gracePeriod: %[1]v}, {priority: 2000000000, gracePeriod: %[1]v}, {priority: 10000, gracePeriod: %[1]v}]\n", grace)
		m := machine.Boot(t, o)
		// A pod that was stopped together with a later group would not have ended before it.
		slowly := []machine.ContainerSpec{{Name: "main", EndsSlowly: time.Second / 2}}
		priority := func(p string) map[string]string { return map[string]string{"hostler.io/priority": p} }
		m.Deploy(
			machine.Pod{Name: "cache", Labels: priority("-100"), Grace: grace, Containers: []machine.ContainerSpec{{Name: "main", IgnoresTERM: true}}},
			machine.Pod{Name: "web", Containers: slowly},
			machine.Pod{Name: "queue", Labels: priority("10000"), Containers: slowly},
			machine.Pod{Name: "db", Critical: true, Containers: slowly},
		)
		boot := m.BootID()

		m.AwaitDown("a reboot into which a pod comes", func() error {
			m.Run("systemctl reboot")
			m.Eventually("cache is sent the stop signal", func() bool { return !m.Work().Boot(boot).Pod("cache")[0].Term().IsZero() })
			m.Deploy(machine.Pod{Name: "late", Containers: slowly})
			m.Run(kill("cache")) // as long as it runs, the group waits for it
			return nil
		})

		work := m.Work().Boot(boot)
		for _, group := range []struct{ pod, next string }{{"cache", "web"}, {"cache", "late"}, {"web", "queue"}, {"late", "queue"}, {"queue", "db"}} {
			if !work.GoneBefore(group.pod, group.next) {
				t.Errorf("%s, which is of a later group, got SIGTERM before %s was gone:\n%s", group.next, group.pod, work)
			}
		}
		for _, pod := range []string{"cache", "web", "late", "queue", "db"} {
			expectTerms(t, work, pod, 1)
			if pod != "cache" && !work.Ended(pod) {
				t.Errorf("%s was cut off, want it to end by itself:\n%s", pod, work)
			}
		}
		if late, first := work.Pod("late")[0], work.Pod("cache")[0]; late.Started.Before(first.Term()) {
			t.Errorf("late started before the first SIGTERM, so that the test proves nothing about later pods:\n%s", work)
		}
		last := expectRecord(t, m, boot, map[string]journal.Outcome{
			"cache": journal.Killed, "web": journal.Stopped, "late": journal.Stopped, "queue": journal.Stopped, "db": journal.Stopped,
		})
		for pod, phase := range map[string]string{
			"cache": "priority--100", "web": "priority-0", "late": "priority-0", "queue": "priority-10000", "db": "priority-2000000000",
		} {
			if !slices.ContainsFunc(last.Pods, func(p journal.PodRecord) bool { return p.Name == pod && p.Phase == phase }) {
				t.Errorf("LastShutdown() = %+v, want %s in phase %s", last.Pods, pod, phase)
			}
		}
		logindWaited(t, m)
	})
}
