package agent

import (
	"context"
	"os"
	"path/filepath"
	goruntime "runtime"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/discovery"
	"hostler.io/hostler/status"
)

func TestTheNodeFilesystemIsKnownWithoutAStateFolder(t *testing.T) {
	file := filepath.Join(folder(t), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r := newRig(t)
	r.cfg.State.Directory = filepath.Join(file, "state") // root cannot create it either
	a := r.build(t)
	facts := a.host.facts.Now(t.Context(), nil)
	if fs := facts.Filesystems[0]; fs.Role != status.RoleNode || fs.Problem != "" {
		t.Errorf("Now() = node filesystem %+v, want it measured", fs)
	}
}

func TestTheUptimeIsKnown(t *testing.T) {
	if up := uptime(); up <= 0 {
		t.Errorf("uptime() = %v, want what has passed since the boot", up)
	}
}

// After a power failure, the next boot reports the last list of pods.
func TestAChangeOfContainersHasThePodsListedAgain(t *testing.T) {
	t.Parallel()
	a := newRig(t).build(t)
	for what, change := range map[string]func(){
		"a container started": func() { a.notice(runtime.Event{Runtime: "containerd", Type: runtime.ContainerStarted}) },
		"a runtime fell mute": func() { a.setBlind("containerd", true) },
	} {
		synctest.Test(t, func(t *testing.T) {
			listed := make(chan struct{}, 1)
			a.shutdown.pods = discovery.NewPodWatch(func(ctx context.Context) ([]runtime.Pod, error) {
				select {
				case listed <- struct{}{}:
					return nil, nil
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			}, a.shutdown.guard.Observe, a.shutdown.guard.Change)
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- a.shutdown.pods.Run(ctx) }()
			<-listed
			began := time.Now()
			change()
			<-listed
			if took := time.Since(began); took > 20*time.Second { // much less than the interval of one minute
				t.Errorf("pods were listed again %v after %s, want it soon", took, what)
			}
			cancel()
			<-ended
		})
	}
}

// slow is a control plane that registers the Node only after the Lease exists.
type slow struct {
	controlplane.Client
	keeper  func() *controlplane.LeaseKeeper
	renewed chan bool // whether it was renewed; sent once
}

func (s *slow) Register(ctx context.Context, node *corev1.Node, o controlplane.RegisterOptions) (*corev1.Node, error) {
	for s.keeper().Stats().Renewals == 0 && ctx.Err() == nil {
		goruntime.Gosched()
	}
	select {
	case s.renewed <- s.keeper().Stats().Renewals > 0:
	default: // already sent
	}
	return s.Client.Register(ctx, node, o)
}

func TestTheLeaseDoesNotWaitForTheNode(t *testing.T) {
	r := newRig(t)
	a := r.build(t)
	plane := &slow{Client: a.plane.Client, renewed: make(chan bool, 1)}
	plane.keeper = func() *controlplane.LeaseKeeper { return a.plane.keeper }
	a.join(t, plane)
	signals, ended := make(chan os.Signal, 1), make(chan error, 1)
	go func() { ended <- a.Run(signals) }()
	if !<-plane.renewed {
		t.Error("the Lease was not renewed while the Node was registered")
	}
	signals <- syscall.SIGTERM
	within(t, "after SIGTERM", ended)
}
