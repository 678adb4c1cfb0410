package maintenance_test

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hostler.io/hostler/agent/maintenance"
	"hostler.io/hostler/gc"
	"hostler.io/hostler/internal/statefile"
	"hostler.io/hostler/shutdown/journal"
)

// left writes a journal with this content, and returns its path.
func left(t *testing.T, content map[string]any) string {
	t.Helper()
	content["version"] = 1
	data, err := json.Marshal(content)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "shutdown.json")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestPodsOfTheLastShutdownAreProtected(t *testing.T) {
	now := time.Now()
	drained, j := maintenance.OpenDrained(statefile.NewMemory().File("drained")), journal.Open(left(t, map[string]any{"bootID": "one", "record": journal.Record{
		BootID: "one", StartedAt: now, FinishedAt: now, Graceful: true,
		Pods: []journal.PodRecord{{Runtime: "containerd", ID: "a", UID: "u", Outcome: journal.Stopped}, {Runtime: "podman", ID: "b", Outcome: journal.Left}},
	}}), "two", slog.New(slog.DiscardHandler))
	got, uids := maintenance.Protected(drained, j, time.Now(), time.Hour)
	if len(uids) != 2 || uids["u"].Reason == "" || uids["b"].Reason == "" {
		t.Errorf("Protected() = UIDs %v, want that of the orchestrator, and the ID where there is none", uids)
	}
	if len(got) != 2 || got[gc.PodKey{Runtime: "containerd", ID: "a"}].Reason == "" || got[gc.PodKey{Runtime: "podman", ID: "b"}].Reason == "" {
		t.Errorf("Protected() = %v, want both pods", got)
	}
	long := now.Add(-25 * time.Hour)
	j = journal.Open(left(t, map[string]any{"bootID": "one", "record": journal.Record{
		BootID: "one", StartedAt: long, FinishedAt: long, Pods: []journal.PodRecord{{Runtime: "containerd", ID: "a"}},
	}}), "one", slog.New(slog.DiscardHandler))
	if got, _ := maintenance.Protected(drained, j, time.Now(), time.Hour); len(got) != 0 {
		t.Errorf("Protected() a day later = %v, want none", got)
	}
	j = journal.Open(left(t, map[string]any{"bootID": "one", "record": journal.Record{
		BootID: "one", StartedAt: now, CancelledAt: now,
		Pods: []journal.PodRecord{{ID: "a", Outcome: journal.Stopped}, {ID: "b", Outcome: journal.Skipped}, {ID: "c", StartedAt: now, Outcome: journal.Left}},
	}}), "one", slog.New(slog.DiscardHandler))
	if got, _ := maintenance.Protected(drained, j, time.Now(), time.Hour); len(got) != 1 || !strings.Contains(got[gc.PodKey{ID: "a"}].Detail, "cancelled") {
		t.Errorf("Protected() after a shutdown that was cancelled = %v, want what it stopped, and not what runs on", got)
	}
	j = journal.Open(left(t, map[string]any{"bootID": "one", "record": journal.Record{BootID: "one", StartedAt: now, Pods: []journal.PodRecord{{ID: "a", StartedAt: now}, {ID: "b"}}}}), "one", slog.New(slog.DiscardHandler))
	j.Settle()
	if got, _ := maintenance.Protected(drained, j, time.Now(), time.Hour); len(got) != 1 || got[gc.PodKey{ID: "a"}].Reason == "" {
		t.Errorf("Protected() after a shutdown whose cancellation was not recorded = %v, want the pods that were sent the stop signal", got)
	}
}

func TestWhatADrainHasStoppedIsProtected(t *testing.T) {
	now := time.Now()
	store := statefile.NewMemory().File("drained")
	before := maintenance.OpenDrained(store)
	before.Take(&journal.Record{Pods: []journal.PodRecord{
		{Runtime: "docker", ID: "a", StartedAt: now, Outcome: journal.Stopped},
		{Runtime: "docker", ID: "b", UID: "u", StartedAt: now},
		{Runtime: "docker", ID: "spared", Outcome: journal.Skipped},
		{Runtime: "docker", ID: "of long ago", StartedAt: now.Add(-25 * time.Hour)},
	}}, now)
	j := journal.Open(left(t, map[string]any{"bootID": "one"}), "one", slog.New(slog.DiscardHandler))
	pods, uids := maintenance.Protected(maintenance.OpenDrained(store), j, time.Now(), time.Hour)
	if len(pods) != 2 || pods[gc.PodKey{Runtime: "docker", ID: "a"}].Reason != gc.Drained || pods[gc.PodKey{Runtime: "docker", ID: "b"}].Reason != gc.Drained {
		t.Errorf("Protected() after a restart = %v, want both that were sent the stop signal", pods)
	}
	record := &journal.Record{Trigger: journal.TriggerReboot, StartedAt: now.Add(-48 * time.Hour), Pods: []journal.PodRecord{
		{Runtime: "docker", ID: "held", StartedAt: now.Add(-48 * time.Hour), ContainerMaps: journal.ContainerMaps{Asked: map[string]time.Time{"c": now}}},
	}}
	j.PutDrained(record)
	if held, _ := maintenance.Protected(maintenance.OpenDrained(store), j, time.Now(), time.Hour); held[gc.PodKey{Runtime: "docker", ID: "held"}].Reason == "" {
		t.Errorf("Protected() = %v, want the pod that the undo of a drain starts", held)
	}
	if len(uids) != 2 || uids["a"].Reason != gc.Drained || uids["u"].Reason != gc.Drained {
		t.Errorf("Protected() after a restart = UIDs %v, want those of both", uids)
	}
}
