package agent

import (
	"context"
	"os"
	"path/filepath"
	goruntime "runtime"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/agent/controlplane"
	"hostler.io/hostler/agent/report"
	"hostler.io/hostler/runtime"
	"hostler.io/hostler/status"
)

func TestTheNodeFilesystemIsKnownWithoutAStateFolder(t *testing.T) {
	file := filepath.Join(folder(t), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r := newRig(t)
	r.cfg.State.Directory = filepath.Join(file, "state") // which root cannot make either
	a := r.build(t)
	facts := a.facts.Now(t.Context(), nil)
	if fs := facts.Filesystems[0]; fs.Role != status.RoleNode || fs.Problem != "" {
		t.Errorf("Now() = node filesystem %+v, want it measured", fs)
	}
}

// What the next boot tells after a power cut is what was listed last.
func TestAChangeOfContainersHasThePodsListedAgain(t *testing.T) {
	a := newRig(t).build(t)
	for event, want := range map[runtime.EventType]bool{
		runtime.ImageAdded: false, runtime.ImageRemoved: false,
		runtime.ContainerStarted: true, runtime.ContainerExited: true, runtime.ContainerRemoved: true, runtime.Changed: true,
	} {
		a.notice(runtime.Event{Runtime: "containerd", Type: event})
		if got := a.podsChanged.Swap(false); got != want {
			t.Errorf("notice() of event %v has pods listed again = %t, want %t", event, got, want)
		}
	}
}

// slow is a control plane that knows the Node no sooner than the Lease is there.
type slow struct {
	controlplane.Client
	keeper  *controlplane.LeaseKeeper
	renewed chan bool // whether it was, before nobody waited any more
}

func (s slow) Node(ctx context.Context, name string) (*corev1.Node, error) {
	for s.keeper.Stats().Renewals == 0 && ctx.Err() == nil {
		goruntime.Gosched()
	}
	select {
	case s.renewed <- s.keeper.Stats().Renewals > 0:
	default: // told already
	}
	return s.Client.Node(ctx, name)
}

func TestTheLeaseDoesNotWaitForTheNode(t *testing.T) {
	r := newRig(t)
	a := r.build(t)
	plane := slow{a.client, a.keeper, make(chan bool, 1)}
	a.client = plane
	a.reporter = report.New(a.reports())
	signals, ended := make(chan os.Signal, 1), make(chan error, 1)
	go func() { ended <- a.Run(signals) }()
	if !<-plane.renewed {
		t.Error("the Lease was not renewed while the Node was waited for")
	}
	signals <- syscall.SIGTERM
	within(t, "after SIGTERM", ended)
}
