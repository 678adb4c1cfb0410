package owner

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"hostler.io/hostler/internal/statefile"
	"hostler.io/hostler/internal/trust/trusttest"
	"hostler.io/hostler/systemd"
)

const nodeName = "node-a"

func TestTheShutdownIsAKubeletsOnlyByItsLock(t *testing.T) {
	var lock string
	var lockErr error
	s := Search{
		Proc: trusttest.Proc(t, trusttest.Process{PID: 812, Name: "kubelet"}),
		Past: OpenPast(PastOptions{Notes: statefile.NewMemory().Notes("node"), Boot: "boot-1", Node: nodeName, Log: discard()}),
		Locks: func(context.Context) (locks []systemd.InhibitorLock, err error) {
			if lock != "" {
				locks = []systemd.InhibitorLock{{What: "shutdown", Who: "kubelet", Why: lock, Mode: "delay", PID: 812}}
			}
			return locks, lockErr
		},
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
		want := step.want
		if want != "" {
			want = fmt.Sprintf("delay lock %q of pid 812", want)
		}
		if got := known[Shutdown]; got.Evidence != want || len(known) < len(Jobs())-1 {
			t.Errorf("%s: Others() = %v, want the shutdown by %q, and all other jobs", step.what, known, step.want)
		}
	}
}

func TestAHostWithoutANameHasNoNode(t *testing.T) {
	kubelet := Owner{Name: Kubelet, Evidence: "process kubelet, pid 7"}
	for name, c := range map[string]struct {
		set   Switch
		there bool
		why   string
		want  Owner
	}{
		"by default":            {Auto, false, "no name", Owner{Name: None, Evidence: "no name"}},
		"switched on":           {On, false, "no name", Owner{Name: None, Evidence: "no name"}},
		"switched off":          {Off, false, "no name", Owner{Name: None, Evidence: "no name"}},
		"beside a kubelet":      {Auto, true, "no name", kubelet},
		"once it may have one":  {Auto, false, "", Owner{Name: Hostler, Evidence: "no other owner found"}},
		"once it may, switched": {On, false, "", Owner{Name: Hostler, Evidence: "switched on in the configuration"}},
	} {
		scan := func(context.Context, map[Job]Owner) map[Job]Owner {
			if c.there {
				return map[Job]Owner{Node: kubelet, Lease: kubelet}
			}
			return map[Job]Owner{}
		}
		o := New(map[Job]Switch{Node: c.set, Lease: c.set}, BlockNode(func() string { return c.why }, scan), discard())
		o.Refresh(t.Context())
		for _, job := range []Job{Node, Lease} {
			if _, got, _ := o.Mine(job); got != c.want {
				t.Errorf("%s: %s is %+v's, want %+v", name, job, got, c.want)
			}
		}
		if mine, _, _ := o.Mine(ImageGC); !mine {
			t.Errorf("%s: the images are not hostler's", name)
		}
	}
}
