package journal_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"hostler.io/hostler/shutdown/journal"
)

// manualDrain is a manual drain in a boot.
func manualDrain(boot string) *journal.Record {
	now := time.Now()
	return &journal.Record{BootID: boot, Trigger: journal.TriggerManual, StartedAt: now, FinishedAt: now, Graceful: true, Pods: []journal.PodRecord{
		{Runtime: "docker", ID: "shop", StartedAt: now, FinishedAt: now, Outcome: journal.Stopped},
	}}
}

// After hostler uncordon, a manual drain is kept until the boot after the next one.
func TestAManualDrainIsKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "shutdown.json")
	open := func(boot string) (*journal.Journal, func()) {
		j := journal.Open(path, boot, quiet)
		return j, keep(t, j)
	}
	shutdown := func(j *journal.Journal, boot string) {
		now := time.Now()
		j.Put(&journal.Record{BootID: boot, Trigger: journal.TriggerShutdown, StartedAt: now, FinishedAt: now, Graceful: true, Pods: []journal.PodRecord{}})
	}
	j, stop := open("one")
	if got := j.Drained(); got != nil {
		t.Errorf("Drained() = %+v before there was one", got)
	}
	running := manualDrain("one")
	running.FinishedAt, running.Pods[0].Outcome, running.Graceful = time.Time{}, "", false
	j.PutDrained(running)
	stop()

	j, stop = open("one") // the agent was killed during the drain
	if got := j.Drained(); got == nil || got.Error != "the agent ended during the drain" || got.Pods[0].Outcome != journal.Left {
		t.Errorf("Drained() = %+v of an agent that ended meanwhile, want that and what was left", got)
	}
	j.PutDrained(manualDrain("one"))
	idle := manualDrain("one")
	idle.Pods = nil
	j.PutDrained(idle)
	if got := j.Drained(); got == nil || len(got.Pods) != 1 || got.Error != "" {
		t.Errorf("Drained() = %+v, want the one that stopped a pod", got)
	}
	shutdown(j, "one")
	stop()

	j, stop = open("two")
	if s := j.History(); s.Last == nil || s.Drained == nil || !s.DrainedBefore() || s.Drained.Trigger != journal.TriggerManual || s.Drained.Pods[0].Outcome != journal.Stopped {
		t.Errorf("History() = %+v after the reboot, want the drain before the shutdown", s)
	}
	stop()
	peeked, err := journal.Peek(path, "two")
	if err != nil || !peeked.DrainedBefore() {
		t.Errorf("Peek() = %+v, %v, want the drain as well", peeked, err)
	}
	j, stop = open("two")
	j.EndMaintenance()
	shutdown(j, "two")
	if got := j.Drained(); got != nil {
		t.Errorf("Drained() = %+v after the shutdown of a boot without one, want none", got)
	}
	stop()

	j, stop = open("three")
	if got := j.Drained(); got != nil {
		t.Errorf("Drained() = %+v two boots later, want none", got)
	}
	stop()
}

// drainOf is a manual drain that stopped these pods of Docker.
func drainOf(boot string, at time.Time, ids ...string) *journal.Record {
	r := &journal.Record{BootID: boot, Trigger: journal.TriggerManual, StartedAt: at, FinishedAt: at, Graceful: true, Pods: []journal.PodRecord{}}
	for _, id := range ids {
		r.Pods = append(r.Pods, journal.PodRecord{
			Runtime: "docker", ID: id, StartedAt: at, FinishedAt: at, Outcome: journal.Stopped, Error: "an error",
			ContainerMaps: journal.ContainerMaps{Asked: map[string]time.Time{id: at}},
		})
	}
	return r
}

func idsOf(pods []journal.PodRecord) (ids []string) {
	for _, p := range pods {
		ids = append(ids, p.ID)
	}
	return ids
}

// A second drain replaces the first one, and keeps the pods that it stopped until hostler uncordon,
// over any number of boots.
func TestADrainKeepsWhatEarlierDrainsStopped(t *testing.T) {
	path := filepath.Join(t.TempDir(), "shutdown.json")
	open := func(boot string) (*journal.Journal, func()) {
		j := journal.Open(path, boot, quiet)
		return j, keep(t, j)
	}
	want := func(when string, j *journal.Journal, pods, earlier []string) {
		t.Helper()
		r := j.Drained()
		if r == nil || !slices.Equal(idsOf(r.Pods), pods) || !slices.Equal(idsOf(r.Earlier), earlier) {
			t.Errorf("%s Drained() = %+v, want pods %q and earlier ones %q", when, r, pods, earlier)
		}
	}
	now := time.Now()
	j, stop := open("one")
	interrupted := drainOf("one", now, "web", "db", "untouched")
	interrupted.FinishedAt, interrupted.CancelledAt = time.Time{}, now
	interrupted.Pods[1].Outcome = journal.Left
	interrupted.Pods[2].StartedAt, interrupted.Pods[2].Outcome = time.Time{}, journal.Skipped
	j.PutDrained(interrupted)
	second := drainOf("one", now.Add(time.Second), "dns")
	if got := idsOf(j.PutDrained(second)); !slices.Equal(got, []string{"web", "db"}) {
		t.Errorf("PutDrained() = %q, want what the first drain sent the stop signal", got)
	}
	j.PutDrained(second) // a later state of the same drain
	want("after the second drain", j, []string{"dns"}, []string{"web", "db"})
	if len(second.Earlier) > 0 || j.Drained().Earlier[0].Error != "" {
		t.Errorf("the record was changed to %+v, or the earlier pods %+v have details", second, j.Drained().Earlier)
	}
	if got := idsOf(j.PutDrained(drainOf("one", now.Add(2*time.Second)))); !slices.Equal(got, []string{"web", "db", "dns"}) {
		t.Errorf("PutDrained() of a drain with nothing to stop = %q, want all that was stopped", got)
	}
	want("after a drain with nothing to stop", j, []string{"dns"}, []string{"web", "db"})
	stop()

	j, stop = open("two")
	j.PutDrained(drainOf("two", now.Add(time.Hour), "web"))
	want("after a drain in the next boot", j, []string{"web"}, []string{"db", "dns"})
	stop()
	_, stop = open("three")
	stop()
	j, stop = open("four")
	want("two boots later", j, []string{"web"}, []string{"db", "dns"})
	j.EndMaintenance()
	want("after hostler uncordon, which lists it,", j, []string{"web"}, []string{"db", "dns"})
	j.PutDrained(drainOf("four", now.Add(2*time.Hour), "app"))
	want("after the first drain of the next maintenance", j, []string{"app"}, nil)
	stop()
}

// If another container of the pod was started and stopped again, the pod is in both records.
func TestADrainKeepsTheContainersThatItDidNotStopAgain(t *testing.T) {
	j := journal.Open(filepath.Join(t.TempDir(), "shutdown.json"), "one", quiet)
	now := time.Now()
	first := drainOf("one", now, "pod")
	first.Pods[0].Asked["sidecar"] = now
	j.PutDrained(first)
	j.PutDrained(drainOf("one", now.Add(time.Second), "pod"))
	if got := j.Drained().Earlier; len(got) != 1 || len(got[0].Asked) != 2 {
		t.Errorf("Earlier = %+v, want the pod with its sidecar", got)
	}
	first.StartedAt = now.Add(2 * time.Second)
	j.PutDrained(first)
	if got := j.Drained().Earlier; len(got) != 0 {
		t.Errorf("Earlier = %+v, want none once all its containers were stopped again", got)
	}
}

func TestWhatEarlierDrainsStoppedIsBounded(t *testing.T) {
	j := journal.Open(filepath.Join(t.TempDir(), "shutdown.json"), "one", quiet)
	now := time.Now()
	j.PutDrained(drainOf("one", now.Add(-31*24*time.Hour), "long ago"))
	for i := range 30 {
		ids := make([]string, 100)
		for k := range ids {
			ids[k] = fmt.Sprintf("%d-%d", i, k)
		}
		j.PutDrained(drainOf("one", now.Add(time.Duration(i)*time.Second), ids...))
	}
	got := idsOf(j.Drained().Earlier)
	if len(got) != 1000 || got[0] != "19-0" || got[999] != "28-99" {
		t.Errorf("Earlier has %d pods, %q, want the latest 1000", len(got), got)
	}
}

// A manual drain keeps the pods of an automatic drain. An undone drain only restarts its own pods.
func TestAutomaticAndManualDrainsAreKept(t *testing.T) {
	j := journal.Open(filepath.Join(t.TempDir(), "shutdown.json"), "one", quiet)
	now := time.Now()
	own := drainOf("one", now, "web")
	own.Trigger, own.Cause = journal.TriggerTaint, "taint a:NoExecute"
	j.PutDrained(own)
	j.PutDrained(drainOf("one", now.Add(time.Second), "dns"))
	if got := idsOf(j.Drained().Earlier); !slices.Equal(got, []string{"web"}) {
		t.Errorf("Earlier = %q, want the pod of the drain for a taint", got)
	}
	again := drainOf("one", now.Add(2*time.Second), "app")
	again.Trigger, again.Cause = own.Trigger, own.Cause
	j.PutDrained(again)
	j.UndoDrain(again.StartedAt)
	restarts := j.Restarts()
	if len(restarts) != 1 || restarts[0].ID != "app" || !slices.Equal(idsOf(j.Drained().Earlier), []string{"web", "dns"}) {
		t.Fatalf("Restarts() = %+v, want app alone; the record is %+v", restarts, j.Drained())
	}
	restarts[0].Outcome = journal.Restarted
	j.NoteRestart(restarts[0])
	j.PutDrained(drainOf("one", now.Add(3*time.Second), "batch"))
	if got := idsOf(j.Drained().Earlier); !slices.Equal(got, []string{"web", "dns"}) {
		t.Errorf("Earlier = %q, want those that hostler did not restart", got)
	}
}
