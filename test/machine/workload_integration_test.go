//go:build integration

package machine_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/status/reboots"
	"hostler.io/hostler/test/machine"
)

// The periods of a machine are so long that nothing in it is short of time, even on a busy host. A
// wait that must not happen takes longer than late, the accepted delay between an event and hostler's
// reaction.
const (
	regularPeriod  = 10 * time.Minute
	criticalPeriod = 10 * time.Minute
	late           = 5 * time.Minute
	stubbornGrace  = 6 * time.Second
)

func workloadConfig() string {
	return fmt.Sprintf("shutdown: {gracePeriod: %v, gracePeriodCriticalPods: %v}\n", regularPeriod+criticalPeriod, criticalPeriod)
}

// workload returns the pods of a scenario: three regular ones that end at once, slowly and not at
// all, and a critical one.
func workload() []machine.Pod {
	return []machine.Pod{
		{Name: "web"},
		{Name: "batch", Containers: []machine.ContainerSpec{{Name: "main", EndsSlowly: time.Second}}},
		{Name: "stubborn", Grace: stubbornGrace, Containers: []machine.ContainerSpec{{Name: "main", IgnoresTERM: true}}},
		{Name: "db", Critical: true},
	}
}

// closed is the end of a boot: the records of its pods, and hostler's reports.
type closed struct {
	work machine.Work
	last journal.Record
}

// pod returns hostler's record of a pod.
func (c closed) pod(name string) journal.PodRecord {
	i := slices.IndexFunc(c.last.Pods, func(p journal.PodRecord) bool { return p.Name == name })
	if i < 0 {
		return journal.PodRecord{}
	}
	return c.last.Pods[i]
}

// took returns how long the shutdown waited for the pod.
func took(p journal.PodRecord) time.Duration { return p.FinishedAt.Sub(p.StartedAt) }

// readBack reads, in a machine that is up again, how the previous boot ended.
func readBack(t *testing.T, m *machine.Machine, before string) closed {
	t.Helper()
	last := m.LastShutdown()
	if last == nil || !strings.HasPrefix(last.BootID, before) {
		t.Fatalf("LastShutdown() = %+v, want that of boot %s", last, before)
	}
	return closed{m.Work().Boot(before), *last}
}

// checkWorkload checks the promise for the end of a boot and these pods: two phases in order,
// SIGTERM before SIGKILL, and no wait longer than needed.
func checkWorkload(t *testing.T, c closed, pods []machine.Pod, trigger journal.Trigger) {
	t.Helper()
	work := c.work
	for _, pod := range pods {
		outcome := journal.Stopped
		if pod.Name == "stubborn" {
			outcome = journal.Killed
		}
		if got := c.pod(pod.Name); got.Outcome != outcome {
			t.Errorf("LastShutdown() reports %s: %+v, want it %s", pod.Name, got, outcome)
		}
		if outcome == journal.Stopped && !work.Ended(pod.Name) {
			t.Errorf("%s was cut off, want it to end in its time:\n%s", pod.Name, work)
		}
		if !pod.Critical && !work.GoneBefore(pod.Name, "db") {
			t.Errorf("db, which is critical, got SIGTERM before %s was gone:\n%s", pod.Name, work)
		}
	}
	for _, life := range work.Pod("stubborn") {
		// How long it lived is in hostler's record: a busy host is late to wake it for its own.
		if life.Term().IsZero() || !life.CutOff() {
			t.Errorf("stubborn ended by itself or got no SIGTERM, want it killed at the end of its grace period of %v:\n%s", stubbornGrace, work)
		}
	}
	last := c.last
	if last.Trigger != trigger || !last.Graceful || last.FinishedAt.IsZero() || len(last.Pods) != len(pods) || len(work) != len(pods) {
		t.Errorf("LastShutdown() = %+v, want a graceful %s of %d pods", last, trigger, len(pods))
	}
	expectHaste(t, c)
}

// expectHaste checks that each wait ended with its event, and not with its time, according to
// hostler and the pods.
func expectHaste(t *testing.T, c closed) {
	t.Helper()
	var last time.Time // end of the last pod that is not critical
	for _, p := range c.last.Pods {
		for _, life := range c.work.Pod(p.Name) {
			if after := p.FinishedAt.Sub(life.Gone()); after >= late {
				t.Errorf("%s was gone, and waited for %v longer, want less than %v:\n%s", p.Name, after, late, c.work)
			}
		}
		if p.Name != "db" && p.FinishedAt.After(last) {
			last = p.FinishedAt
		}
	}
	if p := c.pod("stubborn"); took(p) < stubbornGrace || took(p) >= stubbornGrace+late {
		t.Errorf("stubborn was waited for %v, want it killed at the end of its grace period of %v, and no later than %v after", took(p), stubbornGrace, late)
	}
	if after := c.pod("db").StartedAt.Sub(last); after < 0 || after >= late {
		t.Errorf("the critical phase began %v after the last pod of the regular one, which may take %v, was over, want it to wait for nothing", after, regularPeriod)
	}
	if after := c.last.FinishedAt.Sub(c.pod("db").FinishedAt); after < 0 || after >= late {
		t.Errorf("the last phase, which may take %v, ended %v after its last pod, want it to wait for nothing", criticalPeriod, after)
	}
}

// expectReboot checks hostler's verdict on the cause of this boot.
func expectReboot(t *testing.T, m *machine.Machine, want reboots.Verdict) {
	t.Helper()
	if last := m.Status().Reboots.Last; last == nil || last.Verdict != want {
		t.Errorf("Status().Reboots.Last = %+v, want the reboot %s", last, want)
	}
}

// logFindings logs the measured times, for docs/explanation/shutdown.md.
func (c closed) logFindings(t *testing.T, way string) {
	t.Helper()
	first := time.Time{}
	for _, life := range c.work {
		if term := life.Term(); !term.IsZero() && (first.IsZero() || term.Before(first)) {
			first = term
		}
	}
	t.Logf("seen: %s: %s %q, first SIGTERM after %v, stubborn killed after %v, critical phase after %v, all over after %v",
		way, c.last.Trigger, c.last.Kind, first.Sub(c.last.StartedAt).Round(time.Millisecond), took(c.pod("stubborn")).Round(10*time.Millisecond),
		c.pod("db").StartedAt.Sub(c.last.StartedAt).Round(10*time.Millisecond), c.last.FinishedAt.Sub(c.last.StartedAt).Round(10*time.Millisecond))
}

// versions returns the versions of the machine's programs.
func versions(m *machine.Machine) string {
	return strings.TrimSpace(m.Run("systemctl --version | head -n 1; containerd --version; runc --version | head -n 1; uname -r"))
}

// hostlersLocks returns the number of hostler's locks in logind's list.
func hostlersLocks(m *machine.Machine) int {
	return strings.Count(m.Run("systemd-inhibit --list --no-pager --no-legend"), "Stopping pods in order")
}
