package journal_test

import (
	"path/filepath"
	"testing"
	"time"

	"hostler.io/hostler/shutdown/journal"
)

// manualDrain is a drain by a person in a boot.
func manualDrain(boot string) *journal.Record {
	now := time.Now()
	return &journal.Record{BootID: boot, Trigger: journal.TriggerManual, StartedAt: now, FinishedAt: now, Graceful: true, Pods: []journal.PodRecord{
		{Runtime: "docker", ID: "shop", StartedAt: now, FinishedAt: now, Outcome: journal.Stopped},
	}}
}

// A drain by a person is kept until the boot after the next one.
func TestTheDrainOfAPersonIsKept(t *testing.T) {
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

	j, stop = open("one") // the agent was killed in the middle
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
