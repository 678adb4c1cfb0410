package agent

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/agent/backend"
	"hostler.io/hostler/agent/config"
	"hostler.io/hostler/agent/fleet"
	"hostler.io/hostler/agent/metrics"
	"hostler.io/hostler/agent/open"
	"hostler.io/hostler/agent/owner"
	"hostler.io/hostler/agent/settings"
	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controlplanetest"
	"hostler.io/hostler/internal/loop"
	"hostler.io/hostler/internal/statefile"
	"hostler.io/hostler/status/probe"
)

// over builds an agent with another control plane.
func (r *rig) over(t *testing.T, client controlplane.Client) *Agent {
	t.Helper()
	a := r.build(t)
	a.join(t, client)
	return a
}

// join connects a built agent to another control plane.
func (a *Agent) join(t *testing.T, client controlplane.Client) {
	t.Helper()
	owners, past := newOwners(a.naming, client, a.host, a.kept.notes, a.log)
	a.joinAs(t, client, owners, past)
}

// joinAs is join with the given owners of the jobs.
func (a *Agent) joinAs(t *testing.T, client controlplane.Client, owners *owner.Owners, past *owner.Past) {
	t.Helper()
	cfg := a.config()
	a.metrics, a.owners = metrics.New(), owners
	if err := a.joins(cfg, &open.ControlPlane{Client: client}, probe.Machine{MachineID: "m"}); err != nil {
		t.Fatal(err)
	}
	a.plane.past = past
	if err := a.assemble(cfg, new(slog.LevelVar)); err != nil {
		t.Fatal(err)
	}
}

// eventually waits until the agent's status is as expected.
func (r *rig) eventually(t *testing.T, what string, is func(api.Status) bool) {
	t.Helper()
	client := api.NewClient(r.cfg.API.Socket)
	for begin := time.Now(); ; time.Sleep(time.Millisecond) {
		s, err := client.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if is(s) {
			return
		}
		if time.Since(begin) > bound {
			t.Fatalf("status = %+v, want %s by now", s, what)
		}
	}
}

func TestANodeThatAnotherClientCreatesIsAwaitedAndDeleted(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.cfg.Lease.Duration, r.cfg.Lease.RenewInterval = config.Duration(4*time.Second), config.Duration(time.Second) // a Node without a Lease is watched that long
	r.cfg.Node.Register = false
	r.cfg.Status.UpdateInterval = config.Duration(time.Second)
	fake := controlplanetest.NewFake(nil)
	a, signals, ended := r.over(t, fake), make(chan os.Signal, 1), make(chan error, 1)
	go func() { ended <- a.Run(signals) }()
	r.manager.expects(t, "READY=1")
	r.eventually(t, "a Node that is waited for", func(s api.Status) bool {
		return strings.Contains(s.ControlPlane.Paused, "no Node node-a exists yet") && s.ControlPlane.Connected
	})
	if n := fake.Calls(controlplanetest.RenewLease); n != 0 {
		t.Errorf("the lease was renewed %d times before there was a Node, want never", n)
	}
	fake.Create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName}})
	r.eventually(t, "a Node and a lease that is its own", func(s api.Status) bool {
		return s.ControlPlane.Paused == "" && s.Node.UID != "" && s.Lease != nil && len(s.Lease.OwnerReferences) == 1
	})

	var reported []string
	whose, err := api.NewClient(r.cfg.API.Socket).Fleet(t.Context(), func(m fleet.Member) error {
		reported = append(reported, m.Node.Name+" of "+m.Lease.Name)
		return nil
	})
	if want := nodeName + " of " + nodeName; err != nil || whose.Node != nodeName || strings.Join(reported, " ") != want {
		t.Errorf("Fleet() = %+v, %v after %q, want this host with its lease", whose, err, reported)
	}

	if err := fake.Edit(t.Context(), nodeName, func(n *corev1.Node) { n.Spec.Unschedulable = true }); err != nil {
		t.Fatal(err)
	}
	r.eventually(t, "the cordon", func(s api.Status) bool { return s.Node.Spec.Unschedulable })

	if err := fake.Edit(t.Context(), nodeName, func(n *corev1.Node) {
		n.Annotations[controlplane.AnnotationLeaseDuration] = "20m"
	}); err != nil {
		t.Fatal(err)
	}
	r.eventually(t, "the pace that the Node asks for", func(s api.Status) bool {
		return s.LeasePace != nil && s.LeasePace.Duration.Duration == 20*time.Minute && strings.Contains(s.LeasePace.By, controlplane.AnnotationLeaseDuration)
	})
	fake.RequestPace("soon")
	r.eventually(t, "the lease duration for all hosts to be invalid", func(s api.Status) bool {
		return len(s.LeasePace.Faults) == 1 && s.LeasePace.Duration.Duration == 20*time.Minute
	})
	if err := fake.Edit(t.Context(), nodeName, func(n *corev1.Node) { delete(n.Annotations, controlplane.AnnotationLeaseDuration) }); err != nil {
		t.Fatal(err)
	}
	fake.RequestPace("")
	r.eventually(t, "the pace that is configured", func(s api.Status) bool { return s.LeasePace == nil })

	if _, err := api.NewClient(r.cfg.API.Socket).Leave(t.Context()); err != nil {
		t.Errorf("Leave() = %v, want no error", err)
	}
	renewed := fake.Calls(controlplanetest.RenewLease)
	r.eventually(t, "that it has left", func(s api.Status) bool { return strings.Contains(s.ControlPlane.Paused, "hostler leave") })
	lastRound := func() time.Time {
		n, _, _, _ := a.reports.reporter.Current()
		return n.Status.Conditions[0].LastHeartbeatTime.Time
	}
	before := lastRound()
	r.eventually(t, "two more rounds", func(api.Status) bool { return lastRound().After(before.Add(time.Second)) })
	if _, err := fake.Node(t.Context(), nodeName); !errors.Is(err, controlplane.ErrNotFound) || fake.Calls(controlplanetest.RenewLease) != renewed {
		t.Errorf("after it has left: Node() = %v, %d renewals, want nothing written", err, fake.Calls(controlplanetest.RenewLease)-renewed)
	}
	if err := a.serving.backend.Healthy(); err != nil {
		t.Errorf("Healthy() = %v, want nothing amiss", err)
	}
	signals <- syscall.SIGTERM
	within(t, "after SIGTERM", ended)

	r.manager, r.cfg.Node.Register = newManager(t), true
	a = r.over(t, fake)
	go func() { ended <- a.Run(signals) }()
	r.manager.expects(t, "READY=1")
	r.eventually(t, "that it has left after the next start, too", func(s api.Status) bool {
		return strings.Contains(s.ControlPlane.Paused, "hostler leave --undo") && s.Node != nil && s.Lease == nil
	})
	if _, err := fake.Node(t.Context(), nodeName); !errors.Is(err, controlplane.ErrNotFound) || fake.Calls(controlplanetest.RenewLease) != renewed {
		t.Errorf("after the next start: Node() = %v, %d renewals, want nothing written", err, fake.Calls(controlplanetest.RenewLease)-renewed)
	}
	if _, err := api.NewClient(r.cfg.API.Socket).Return(t.Context()); err != nil {
		t.Errorf("Return() = %v, want no error", err)
	}
	r.eventually(t, "a Node and a lease again", func(s api.Status) bool {
		return s.ControlPlane.Paused == "" && s.ControlPlane.Connected && s.Node.UID != "" && s.Lease != nil
	})
	signals <- syscall.SIGTERM
	within(t, "after SIGTERM", ended)
}

// A Node is seldom written, so that its last write says little about the connection.
func TestARenewalWithoutAnAnswerShowsThatNothingIsConnected(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.cfg.Lease.Duration, r.cfg.Lease.RenewInterval = config.Duration(4*time.Second), config.Duration(time.Second)
	fake := controlplanetest.NewFake(nil)
	a, signals, ended := r.over(t, fake), make(chan os.Signal, 1), make(chan error, 1)
	go func() { ended <- a.Run(signals) }()
	r.manager.expects(t, "READY=1")
	r.eventually(t, "a connection", func(s api.Status) bool { return s.ControlPlane.Connected && s.Lease != nil })
	fake.Inject(controlplanetest.RenewLease, controlplanetest.Fault{Err: controlplane.ErrNoAnswer})
	r.eventually(t, "no connection", func(s api.Status) bool { return !s.ControlPlane.Connected })
	fake.Heal()
	r.eventually(t, "a connection again", func(s api.Status) bool { return s.ControlPlane.Connected })
	signals <- syscall.SIGTERM
	within(t, "after SIGTERM", ended)
}

// deaf is a client whose renewals do not return when their context ends.
type deaf struct {
	controlplane.Client
	release chan struct{}
}

func (d deaf) RenewLease(context.Context, *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	<-d.release
	return nil, controlplane.ErrUnavailable
}

// If failed renewals triggered the watchdog, an unreachable control plane would restart all agents
// of the fleet.
func TestTheWatchdogTriggersForHangingRenewalsNotForFailedOnes(t *testing.T) {
	const overdue = "lease not renewed for "
	for name, c := range map[string]struct {
		client func(*controlplanetest.Fake) controlplane.Client
		fault  controlplanetest.Fault
		bites  bool
		want   string // in the error
	}{
		"attempts fail":                        {nil, controlplanetest.Fault{Err: controlplane.ErrUnavailable}, false, overdue},
		"attempts end at their deadline":       {nil, controlplanetest.Fault{Hang: true}, false, overdue},
		"attempts do not end at all":           {func(f *controlplanetest.Fake) controlplane.Client { return deaf{f, make(chan struct{})} }, controlplanetest.Fault{}, true, "lease not renewed since the first attempt "},
		"somebody else writes it all the time": {nil, controlplanetest.Fault{Conflict: true}, false, overdue},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake := controlplanetest.NewFake(nil)
				var client controlplane.Client = fake
				if c.client != nil {
					client = c.client(fake)
				}
				cfg := config.Default()
				cfg.Node.Name = nodeName
				policies, err := open.NewPolicies(cfg, nodeName, "")
				if err != nil {
					t.Fatal(err)
				}
				a := &Agent{log: discard(), settings: settings.New(cfg, policies, settings.Source{}), metrics: metrics.New(), kept: kept{notes: statefile.NewMemory().Notes("node")}}
				if err := a.joins(cfg, &open.ControlPlane{Client: client}, probe.Machine{MachineID: "m"}); err != nil {
					t.Fatal(err)
				}
				lease := a.plane.lease.Do(plain(a.plane.keeper.Run))
				a.loops = loop.Set{lease}
				health := backend.Health{Loops: a.loops, Keeper: a.plane.keeper, Settings: a.settings}
				ctx, cancel := context.WithCancel(t.Context())
				var done sync.WaitGroup
				done.Go(func() { lease.Supervise(ctx, a.log) })
				if c.client == nil {
					time.Sleep(time.Minute)
					if err := health.Healthy(); err != nil {
						t.Errorf("Healthy() before = %v, want nil", err)
					}
					fake.Inject(controlplanetest.Any, c.fault)
				}
				for range 60 {
					time.Sleep(2 * time.Minute)
					if err := a.loops.Healthy(); (err != nil) != c.bites {
						t.Fatalf("the stopped watchdog notifications for %v, want that: %v", err, c.bites)
					}
					if err := health.Healthy(); err == nil || !strings.Contains(err.Error(), c.want) {
						t.Fatalf("Healthy() = %v, want it red in any case", err)
					}
				}
				cancel()
				if d, stuck := client.(deaf); stuck {
					close(d.release)
				}
				done.Wait()
			})
		})
	}
}
