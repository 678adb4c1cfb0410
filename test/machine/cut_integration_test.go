//go:build integration

package machine_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/status/reboots"
	"hostler.io/hostler/test/machine"
)

// TestThePowerIsCutInADrain tests a loss that only a VM can have: everything that was not synced.
// The next boot knows the state of the drain, and what happened to the pods whose turn had not
// come.
func TestThePowerIsCutInADrain(t *testing.T) {
	// This is the only scenario in a VM in `make test`.
	onDebians(t, releases(machine.Debian12), machine.VM, func(t *testing.T, o machine.Options) {
		o.Config = workloadConfig()
		m := machine.Boot(t, o)
		m.Write("/srv/kept", "over a power cut\n")
		m.Deploy(
			machine.Pod{Name: "web"},
			// Its wait is longer than it takes to cut the power, so that db's turn does not come.
			machine.Pod{Name: "stubborn", Grace: regularPeriod, Containers: []machine.ContainerSpec{{Name: "main", IgnoresTERM: true}}},
			machine.Pod{Name: "db", Critical: true},
		)
		before := m.BootID()
		stubborn := func() machine.Life { return m.Work().Boot(before).Pod("stubborn")[0] }
		m.Run("systemctl reboot")
		m.Eventually("stubborn is sent the stop signal", func() bool { return !stubborn().Term().IsZero() })
		m.Eventually("hostler has written down that web has ended", func() bool { return writtenOf(t, m, "web").Outcome == journal.Stopped })
		// A renamed file survives only if its folder is synced, too.
		at := stubborn().LastSeen
		m.Eventually("stubborn has lived on for a while", func() bool { return stubborn().LastSeen.Sub(at) > 2*time.Second })
		m.CutPower()
		m.Start()

		if text := m.Read("/srv/kept"); text != "over a power cut\n" {
			t.Errorf("Read() = %q, want what was synced before the power was cut", text)
		}
		c := readBack(t, m, before)
		if c.last.Graceful || c.last.Trigger != journal.TriggerShutdown || !c.last.FinishedAt.IsZero() || !strings.Contains(c.last.Error, "during the drain") || len(c.last.Pods) != 3 {
			t.Errorf("LastShutdown() = %+v, want one of three pods that was announced, and came to no end", c.last)
		}
		if c.last.Kind != "reboot" {
			t.Errorf("LastShutdown() is of kind %q, want it to report a reboot", c.last.Kind)
		}
		expectTerms(t, c.work, "stubborn", 1)
		expectTerms(t, c.work, "db", 0)
		if !c.work.Ended("web") || c.work.Ended("stubborn") || c.work.Ended("db") {
			t.Errorf("Work() = want web to end by itself, and the others to be cut off:\n%s", c.work)
		}
		expectCutOff(t, m)
		// The reboot was requested, but the power was cut first.
		expectReboot(t, m, reboots.Expected)
	})
}

// expectCutOff checks the reports about pods that ran when the power was cut: stubborn, which was
// being waited for, and db, whose turn had not come. web must not be reported.
func expectCutOff(t *testing.T, m *machine.Machine) {
	t.Helper()
	type pod struct {
		journal.PodRecord
		Status journal.PodStatus `json:"status"`
	}
	output := machine.Answer[struct{ Pods []pod }](m, "ps", "--last-shutdown")
	t.Logf("seen: hostler ps --last-shutdown after a power cut in a drain: %+v", output)
	got := map[string]pod{}
	for _, p := range output.Pods {
		got[p.Name] = p
	}
	if web := got["web"]; web.Outcome != journal.Stopped || web.FinishedAt.IsZero() || web.Status.Reason == journal.ReasonTerminated {
		t.Errorf("hostler ps --last-shutdown says of web %+v, want it stopped in its time", web)
	}
	for name, asked := range map[string]bool{"stubborn": true, "db": false} {
		p := got[name]
		if p.Outcome != journal.Left || p.StartedAt.IsZero() == asked || !p.FinishedAt.IsZero() {
			t.Errorf("hostler ps --last-shutdown says of %s %+v, want it left, and that it was sent the stop signal = %t", name, p, asked)
		}
		if p.Status.Phase != corev1.PodFailed || p.Status.Reason != journal.ReasonTerminated {
			t.Errorf("hostler ps --last-shutdown says of %s %+v, want it Failed with reason %s", name, p.Status, journal.ReasonTerminated)
		}
	}
	for where, output := range map[string]struct{ out, want string }{
		"status":             {m.Hostler("status"), "NOT graceful, 3 pods (2 left): the host went down during the drain"},
		"ps --last-shutdown": {m.Hostler("ps", "--last-shutdown"), "NOT graceful, 3 pods (2 left): the host went down during the drain"},
		"log":                {m.Journal(0, "-u hostler"), "graceful=false"},
	} {
		if text := strings.Join(strings.Fields(output.out), " "); !strings.Contains(text, output.want) { // however it is wrapped
			t.Errorf("the %s does not say %q:\n%s", where, output.want, output.out)
		}
	}
}

// writtenOf returns hostler's record on disk of a pod in the running drain.
func writtenOf(t *testing.T, m *machine.Machine, pod string) journal.PodRecord {
	t.Helper()
	var file struct{ Record journal.Record }
	text := m.Read("/var/lib/hostler/shutdown.json")
	if err := json.Unmarshal([]byte(text), &file); err != nil {
		t.Fatalf("read hostler's journal: %v:\n%s", err, text)
	}
	return closed{last: file.Record}.pod(pod)
}
