package owner

import (
	"context"
	"errors"
	"strings"
	"testing"

	"hostler.io/hostler/internal/statefile"
)

const nodeName = "node-a"

// Else the cluster would take a host for one that starts pods, while the kubelet is
// being upgraded, or before it runs after a boot.
func TestANodeInAClusterStaysTheKubeletsThatDoesNotRun(t *testing.T) {
	notes := statefile.NewMemory().Notes("node")
	open := func(node string) Search { return Search{Node: OpenKubeletsNode(notes, node, silent())} }
	s := open(nodeName)
	if got := s.reserved(); len(got) != 0 {
		t.Errorf("reserved() before there was a kubelet = %v, want nothing", got)
	}
	s.Node.Note(true, false)
	s.Node.Note(false, false)
	got := open(nodeName).reserved() // as after a restart
	if len(got) != 2 || got[Node].Name != Kubelet || got[Lease].Name != Kubelet || !strings.Contains(got[Node].Evidence, "node.enabled: true") {
		t.Errorf("reserved() after there was a kubelet = %v, want node and lease the kubelet's, and how to change that", got)
	}
	if got := open("other").reserved(); len(got) != 0 {
		t.Errorf("reserved() of another Node = %v, want nothing", got)
	}
	s.Node.Note(false, true)
	if got := open(nodeName).reserved(); len(got) != 0 {
		t.Errorf("reserved() once a person has switched the job on = %v, want nothing", got)
	}
}

func TestTheShutdownIsAKubeletsOnlyByItsLock(t *testing.T) {
	const namespace = "pid:[4026531836]"
	var lock string
	var lockErr error
	s := Search{
		Proc: procTree(t, namespace, process{812, "kubelet", namespace}),
		Node: OpenKubeletsNode(statefile.NewMemory().Notes("node"), nodeName, silent()),
		Lock: func(context.Context, string) (string, error) { return lock, lockErr },
	}
	var known map[Job]Owner
	for _, step := range []struct {
		what, lock string
		err        error
		want       string
	}{
		{"logind does not answer at first", "", errors.New("busy"), ""},
		{"it holds none", "", nil, ""},
		{"it holds one", "delay lock", nil, "delay lock"},
		{"logind does not answer any more", "", errors.New("busy"), "delay lock"},
		{"it has released it", "", nil, ""},
	} {
		lock, lockErr = step.lock, step.err
		known = s.Others(t.Context(), known)
		if got := known[Shutdown]; got.Evidence != step.want || len(known) < len(Jobs())-1 {
			t.Errorf("%s: Others() = %v, want the shutdown by %q, and all other jobs", step.what, known, step.want)
		}
	}
}
