package agent

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"hostler.io/hostler/agent/open"
	"hostler.io/hostler/shutdown/journal"
)

// The reboot was disabled while the host drained for it.
func TestADrainForARebootIsUndoneWhereRebootsAreDisabled(t *testing.T) {
	rig := newRig(t)
	path := open.JournalFile(rig.cfg)
	data, err := json.Marshal(map[string]any{"version": 1, "bootID": "one", "held": []journal.Held{
		{Drain: time.Now(), Trigger: journal.TriggerReboot, Restarts: []journal.Restart{{Runtime: "docker", ID: "web"}}},
	}})
	if err == nil {
		err = errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, data, 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
	if got := rig.build(t).kept.journal.Restarts(); len(got) != 1 || got[0].ID != "web" || got[0].Outcome != "" {
		t.Errorf("Restarts() = %+v, want what the drain has stopped pending", got)
	}
}
