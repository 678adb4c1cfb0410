package owner

import (
	"context"
	"errors"
	"testing"

	"hostler.io/hostler/internal/statefile"
)

const nodeName = "node-a"

func TestTheShutdownIsAKubeletsOnlyByItsLock(t *testing.T) {
	const namespace = "pid:[4026531836]"
	var lock string
	var lockErr error
	s := Search{
		Proc: procTree(t, namespace, process{812, "kubelet", namespace}),
		Past: OpenPast(PastOptions{Notes: statefile.NewMemory().Notes("node"), Boot: "boot-1", Node: nodeName, Log: silent()}),
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
