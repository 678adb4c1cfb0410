package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"hostler.io/hostler/agent/owner"
	"hostler.io/hostler/status/report"
)

func TestNotesOfAnEarlierVersionAreKeptWithoutStateFiles(t *testing.T) {
	r := newRig(t)
	folder := r.cfg.State.Directory
	at := time.Date(2026, 11, 3, 4, 5, 6, 0, time.UTC)
	notes := fmt.Appendf(nil, `{
  "cordon": {"unschedulable": true, "by": "alice", "at": %[1]q, "delivered": true},
  "left": {"node": %[2]q, "controlPlane": "embedded", "by": "bob", "at": %[1]q, "deleted": true},
  "kubelets-node": %[2]q
}
`, at.Format(time.RFC3339), nodeName)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{"node.json": notes, "state.db": []byte("of a build before")} {
		if err := os.WriteFile(filepath.Join(folder, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, when := range []string{"after an upgrade", "after a start later", "after a downgrade that set the state files aside"} {
		if when == "after a downgrade that set the state files aside" {
			files, err := filepath.Glob(filepath.Join(folder, "*.state"))
			if err != nil || len(files) == 0 {
				t.Fatalf("state files = %v, %v, want some", files, err)
			}
			for _, file := range files {
				if err := os.Rename(file, file+".v2"); err != nil {
					t.Fatal(err)
				}
			}
		}
		a := r.build(t)
		if got, want := a.reports.reporter.Decided(), (report.Decision{Unschedulable: true, By: "alice", At: at, Delivered: true}); got == nil || *got != want {
			t.Errorf("%s Decided() = %+v, want %+v", when, got, want)
		}
		if got := a.reports.reporter.Left(); got == nil || got.By != "bob" || !got.At.Equal(at) {
			t.Errorf("%s Left() = %+v, want that bob had it leave", when, got)
		}
		if past := owner.OpenPast(owner.PastOptions{Notes: a.kept.notes, Node: nodeName, Log: discard()}); past.Update("", false)[owner.Node].Name != owner.Kubelet {
			t.Errorf("%s it is not known that the Node is a kubelet's", when)
		}
		if err := a.close(); err != nil {
			t.Fatal(err)
		}
	}
}
