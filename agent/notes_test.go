package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"hostler.io/hostler/internal/state"
	"hostler.io/hostler/status/report"
)

func TestWhatAnEarlierVersionHasKeptOfTheNodeOutlivesTheStateFile(t *testing.T) {
	r := newRig(t)
	file := filepath.Join(r.cfg.State.Directory, "state.db")
	earlier, err := state.Open(file, silent())
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 11, 3, 4, 5, 6, 0, time.UTC)
	if err := earlier.Bucket("agent").Write(map[string][]byte{
		"cordon":        fmt.Appendf(nil, `{"unschedulable":true,"by":"alice","at":%q,"delivered":true}`, at.Format(time.RFC3339)),
		"left":          fmt.Appendf(nil, `{"node":%q,"controlPlane":"embedded","by":"bob","at":%q,"deleted":true}`, nodeName, at.Format(time.RFC3339)),
		"kubelets-node": []byte(nodeName),
	}, nil); err != nil {
		t.Fatal(err)
	}
	if err := earlier.Close(); err != nil {
		t.Fatal(err)
	}
	for _, when := range []string{"after an upgrade", "after a start later", "after a downgrade that set the state file aside"} {
		if when == "after a downgrade that set the state file aside" {
			if err := os.Rename(file, file+".v2"); err != nil {
				t.Fatal(err)
			}
		}
		a := r.build(t)
		if got, want := a.reporter.Decided(), (report.Decision{Unschedulable: true, By: "alice", At: at, Delivered: true}); got == nil || *got != want {
			t.Errorf("%s Decided() = %+v, want %+v", when, got, want)
		}
		if got := a.reporter.Left(); got == nil || got.By != "bob" || !got.At.Equal(at) {
			t.Errorf("%s Left() = %+v, want that bob had it leave", when, got)
		}
		if !a.kubeletsNode.Load() {
			t.Errorf("%s it is not known that the Node is a kubelet's", when)
		}
		if err := a.close(); err != nil {
			t.Fatal(err)
		}
	}
}
