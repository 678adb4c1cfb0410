package journal_test

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"hostler.io/hostler/shutdown/journal"
)

func TestAReopenedRecordStopsWhatRanOn(t *testing.T) {
	now := time.Now()
	r := &journal.Record{BootID: "one", Trigger: journal.TriggerTaint, StartedAt: now, CancelledAt: now, FinishedAt: now, Graceful: true, Error: "it ended", Pods: []journal.PodRecord{
		{ID: "stopped", StartedAt: now, FinishedAt: now, Outcome: journal.Stopped},
		{ID: "killed", StartedAt: now, FinishedAt: now, Outcome: journal.Killed},
		{ID: "left", StartedAt: now, Outcome: journal.Left, Error: "no answer", Stuck: []string{"main"}},
		{ID: "gone", Outcome: journal.Stopped},
		{ID: "not asked", Outcome: journal.Skipped},
		{ID: "unknown", Outcome: journal.Left},
	}}
	got := r.Reopened()
	if !got.FinishedAt.IsZero() || !got.CancelledAt.IsZero() || got.Graceful || got.Error != "" || !got.StartedAt.Equal(now) {
		t.Errorf("Reopened() = %+v, want it open, since its start", got)
	}
	text := ""
	for _, p := range got.Pods {
		text += fmt.Sprintf("%s:%s%s ", p.ID, p.Outcome, p.Error)
	}
	if want := "stopped:stopped killed:killed left: gone:stopped "; text != want {
		t.Errorf("Reopened() has the pods %q, want %q", text, want)
	}
	if len(r.Pods) != 6 || r.Pods[2].Outcome != journal.Left {
		t.Errorf("the record itself = %+v, want it unchanged", r)
	}
}

// The agent was killed during the drain, and the cause ended before the next one started.
func TestADrainIsUndoneByTheNextProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "shutdown.json")
	j := journal.Open(path, "one", quiet)
	stop := keep(t, j)
	now := time.Now()
	r := &journal.Record{BootID: "one", Trigger: journal.TriggerTaint, Cause: "taint a:NoExecute", StartedAt: now, Pods: []journal.PodRecord{
		{Runtime: "docker", ID: "shop", StartedAt: now, ContainerMaps: journal.ContainerMaps{Asked: map[string]time.Time{"c": now}}},
		{Runtime: "docker", ID: "other"},
		{Runtime: "runc", ID: "once", Once: true, StartedAt: now, ContainerMaps: journal.ContainerMaps{Asked: map[string]time.Time{"d": now}}},
	}}
	j.BeginDrain(r, none)
	j.HoldUnits(r, []string{"web.service", "db.service"})
	j.HoldUnits(r, []string{"web.service"})
	j.PutDrained(r)
	stop()

	j = journal.Open(path, "one", quiet)
	stop = keep(t, j)
	if !j.UndoDrain(now) {
		t.Fatal("UndoDrain() = false, want the drain undone")
	}
	if got := j.Restarts(); len(got) != 1 || got[0].ID != "c" || !got[0].Drained || !got[0].HostLived || got[0].By() != "drain" {
		t.Errorf("Restarts() = %+v, want the container that can be started again", got)
	}
	if got := j.PendingServices(); len(got) != 2 || !got[0].InTurn {
		t.Errorf("PendingServices() = %+v, want both units", got)
	}
	if got := j.Drained(); got == nil || got.CancelledAt.IsZero() || got.Graceful {
		t.Errorf("Drained() = %+v, want it cancelled", got)
	}
	stop()

	j = journal.Open(path, "two", quiet)
	defer keep(t, j)()
	if got := j.Restarts(); len(got) != 1 || got[0].HostLived {
		t.Errorf("Restarts() after a boot = %+v, want it started then", got)
	}
}

// A drain for a reboot has done what it was for, once the host has booted.
func TestADrainThatIsUndoneAfterTheBootStaysGraceful(t *testing.T) {
	path := filepath.Join(t.TempDir(), "shutdown.json")
	j := journal.Open(path, "one", quiet)
	stop := keep(t, j)
	now := time.Now()
	j.PutDrained(&journal.Record{BootID: "one", Trigger: journal.TriggerReboot, StartedAt: now, FinishedAt: now, Graceful: true, Pods: []journal.PodRecord{
		{Runtime: "docker", ID: "shop", StartedAt: now, Outcome: journal.Stopped, ContainerMaps: journal.ContainerMaps{Asked: map[string]time.Time{"c": now}}},
	}})
	stop()

	j = journal.Open(path, "two", quiet)
	defer keep(t, j)()
	if !j.UndoDrain(now) {
		t.Fatal("UndoDrain() = false, want the drain undone")
	}
	if got := j.Drained(); got == nil || !got.Graceful || got.FinishedAt.IsZero() {
		t.Errorf("Drained() = %+v, want it graceful", got)
	}
	if got := j.Restarts(); len(got) != 1 || got[0].ID != "c" || got[0].Outcome != "" {
		t.Errorf("Restarts() = %+v, want the container pending", got)
	}
}

// The command that reboots the host failed.
func TestAFinishedDrainThatIsUndoneIsNotCancelled(t *testing.T) {
	j := journal.Open(filepath.Join(t.TempDir(), "shutdown.json"), "one", quiet)
	now := time.Now()
	j.PutDrained(&journal.Record{BootID: "one", Trigger: journal.TriggerReboot, StartedAt: now, FinishedAt: now, Graceful: true, Pods: []journal.PodRecord{{ID: "shop", StartedAt: now, Outcome: journal.Stopped}}})
	for range 2 {
		if !j.UndoDrain(now) {
			t.Error("UndoDrain() = false, want it to know the drain")
		}
	}
	if got := j.Drained(); !got.Graceful || got.FinishedAt.IsZero() || got.UndoneAt.IsZero() {
		t.Errorf("Drained() = %+v, want it finished and undone", got)
	}
}

func TestRestartsThatADrainWaivedArePendingAgainOnceItIsUndone(t *testing.T) {
	j := journal.Open(filepath.Join(t.TempDir(), "shutdown.json"), "one", quiet)
	now := time.Now()
	j.Put(&journal.Record{BootID: "one", Trigger: journal.TriggerShutdown, StartedAt: now, Pods: []journal.PodRecord{
		{Runtime: "docker", ID: "shop", StartedAt: now, ContainerMaps: journal.ContainerMaps{Asked: map[string]time.Time{"c": now}}},
	}})
	j.Settle()
	r := &journal.Record{BootID: "one", Trigger: journal.TriggerTaint, Cause: "taint a:NoExecute", StartedAt: now, Pods: []journal.PodRecord{{ID: "x", StartedAt: now}}}
	j.BeginDrain(r, none)
	j.PutDrained(r)
	if got := j.Restarts(); len(got) > 0 {
		t.Errorf("Restarts() during the drain = %+v, want nothing pending", got)
	}
	j.UndoDrain(now)
	if got := j.Restarts(); len(got) != 1 || got[0].Outcome != "" || got[0].Drained {
		t.Errorf("Restarts() = %+v, want what the shutdown had stopped pending again", got)
	}
}

// none is for a drain that stops critical pods, too.
func none(int32) bool { return false }

// A host that reboots loses its power right after it has booted, before the pods were started again.
func TestADrainOfARebootIsUndoneAfterSeveralBoots(t *testing.T) {
	path, now := filepath.Join(t.TempDir(), "shutdown.json"), time.Now()
	j := journal.Open(path, "one", quiet)
	stop := keep(t, j)
	j.PutDrained(&journal.Record{BootID: "one", Trigger: journal.TriggerReboot, StartedAt: now, FinishedAt: now, Pods: []journal.PodRecord{
		{Runtime: "docker", ID: "shop", StartedAt: now, Outcome: journal.Stopped, ContainerMaps: journal.ContainerMaps{Asked: map[string]time.Time{"c": now}}},
	}})
	stop()
	for _, boot := range []string{"two", "three"} { // without an agent for long
		j = journal.Open(path, boot, quiet)
		stop = keep(t, j)
		j.Mark(nil)
		stop()
	}
	j = journal.Open(path, "four", quiet)
	stop = keep(t, j)
	if !j.UndoDrain(now) || len(j.Restarts()) != 1 || j.Restarts()[0].ID != "c" {
		t.Errorf("Restarts() = %+v, want what the drain has stopped", j.Restarts())
	}
	stop()
	j = journal.Open(path, "five", quiet)
	stop = keep(t, j)
	j.Mark(nil)
	stop()
	j = journal.Open(path, "six", quiet)
	defer keep(t, j)()
	if got := j.Drained(); got != nil {
		t.Errorf("Drained() = %+v two boots after it was undone, want none", got)
	}
}

// A runtime hung, and executes a stop only after the drain was undone.
func TestAnUndoneDrainStartsWhatItStoppedLate(t *testing.T) {
	j := journal.Open(filepath.Join(t.TempDir(), "shutdown.json"), "one", quiet)
	now := time.Now()
	r := &journal.Record{BootID: "one", Trigger: journal.TriggerReboot, StartedAt: now, Pods: []journal.PodRecord{
		{Runtime: "docker", ID: "shop", StartedAt: now, ContainerMaps: journal.ContainerMaps{Asked: map[string]time.Time{"web": now, "db": {}}}},
	}}
	j.BeginDrain(r, none)
	j.PutDrained(r)
	j.UndoDrain(now)
	web := j.Restarts()[0]
	web.Outcome = journal.Restarted
	j.NoteRestart(web)
	r = r.Clone()
	r.Pods[0].Asked = map[string]time.Time{"web": now, "db": now.Add(time.Minute)}
	j.PutDrained(r)
	if got := fmt.Sprint(j.Restarts()[0].Outcome, len(j.Restarts()), j.Restarts()[len(j.Restarts())-1].ID); got != "started2db" || j.Drained().UndoneAt.IsZero() {
		t.Errorf("Restarts() = %+v, want web started and db pending", j.Restarts())
	}
}
