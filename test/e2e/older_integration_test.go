//go:build integration

package e2e_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/shutdown/journal"
)

// The state folder was written by an older version, see the README beside it: a person had cordoned
// the host, and it was shut down. The present version uses what all versions read, and leaves the
// rest unchanged.
func TestTheStateOfAnOlderProgramIsTakenUp(t *testing.T) {
	logind(t) // so that this is another boot
	const kept = "testdata/state-of-3324672"
	a := newAgent(t, quick)
	check(t, os.Mkdir(a.state, 0o700))
	former := filepath.Join(a.state, "state.db")
	gunzip(t, filepath.Join(kept, "state.db.gz"), former)
	before, err := os.ReadFile(former)
	check(t, err)
	for _, name := range []string{"node.json", "shutdown.json"} {
		text, err := os.ReadFile(filepath.Join(kept, name))
		check(t, err)
		check(t, os.WriteFile(filepath.Join(a.state, name), text, 0o600))
	}
	var then api.Status // as that version reported it
	text, err := os.ReadFile(filepath.Join(kept, "status.json"))
	check(t, err)
	check(t, json.Unmarshal(text, &then))
	if then.Node == nil || then.Cordon == nil || then.Shutdown.Last == nil {
		t.Fatalf("the older program printed %s, want a Node, a cordon and a shutdown", text)
	}

	reinstalled(t, then.Node.Annotations[controlplane.AnnotationMachineID]) // the Node belongs to that machine
	a.start()
	s := a.awaitNode()
	if nodeOf(s).UID == then.Node.UID || s.State.Message != "" {
		t.Errorf("Node %s, and of the state %q, want another one than %s, and nothing to say", nodeOf(s).UID, s.State.Message, then.Node.UID)
	}
	if after, err := os.ReadFile(former); err != nil || !bytes.Equal(after, before) || len(a.logLines("ignored state file of an earlier build", former)) != 1 {
		t.Errorf("state.db has %d bytes, %v, of %d, want it left alone, and that in the log once", len(after), err, len(before))
	}
	if aside, err := filepath.Glob(filepath.Join(a.state, "*-*Z")); err != nil || len(aside) > 0 {
		t.Errorf("set aside = %v, %v, want nothing", aside, err)
	}
	if !cordoned(t, s) || s.Cordon == nil || s.Cordon.By != then.Cordon.By || !s.Cordon.At.Equal(then.Cordon.At) {
		t.Errorf("cordon = %+v, want that of the older program, %+v", s.Cordon, then.Cordon)
	}
	wantReport(t, s.Shutdown.Last, journal.TriggerShutdown)
	mentions(t, "hostler ps --last-shutdown", a.prints("ps", "--last-shutdown"), "2 of 4 pods KILLED", "polite", "stubborn", "greedy", "critical")
	a.stop()
	wantEvents(t, a, "LastShutdownGraceful", "left no pod running: 4 pods: 2 stopped, 2 killed after their grace period")

	// What a person requests from now on replaces it.
	a.start()
	a.prints("uncordon")
	a.kill()
	a.start()
	if s := a.awaitNode(); cordoned(t, s) || condition(s, corev1.NodeReady).Type == "" {
		t.Errorf("the Node after an uncordon = %+v, want it open", s.Node)
	}
	a.stop()
}
