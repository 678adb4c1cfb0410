package controlplane_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/agent/controlplane"
	"hostler.io/hostler/agent/controlplane/controlplanetest"
)

// instance is the policy of one process of this machine.
func instance(name string) controlplane.LeasePolicy {
	p := policy(here)
	p.Instance = name
	return p
}

func TestTwoThatAreOneMachineSeeEachOther(t *testing.T) {
	for name, second := range map[string]string{
		"of another boot":                   "boot-2/7/b",
		"copied with its memory, and alive": "boot-1/7/a",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake, log := controlplanetest.NewFake(nil), &journal{}
				first, _ := keep(t, fake, instance("boot-1/7/a"), log.logger())
				after(15 * time.Second)
				other, stop := keep(t, fake, instance(second), quiet())
				after(35 * time.Second)
				for who, k := range map[string]*controlplane.LeaseKeeper{"the first": first, "the second": other} {
					clone := k.Stats().Clone
					if clone == nil {
						t.Fatalf("Stats().Clone of %s = nil, want it seen", who)
					}
					if text := clone.Message("n"); !strings.Contains(text, "this Node, too") || !strings.Contains(clone.Mend(), "systemd-machine-id-setup") {
						t.Errorf("clone of %s: %q, %q, want what is wrong and the mend", who, text, clone.Mend())
					}
				}
				calls := fake.Calls(controlplanetest.Any)
				after(10 * time.Minute)
				if n := fake.Calls(controlplanetest.Any) - calls; n > 2*3*61 {
					t.Errorf("calls of both in ten minutes = %d, want at most three in each interval of each", n)
				}
				if n := log.count("ERROR"); n != 1 {
					t.Errorf("errors logged = %d, want one", n)
				}
				if stats := first.Stats(); stats.Overdue(40*time.Second) != nil {
					t.Errorf("Overdue() of the first = %v, want the lease kept up", stats.Overdue(40*time.Second))
				}
				stop()
				after(time.Minute)
				if clone := first.Stats().Clone; clone != nil {
					t.Errorf("Stats().Clone a minute after the other has ended = %+v, want none", clone)
				}
			})
		})
	}
}

func TestARestartIsNoClone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, log := controlplanetest.NewFake(nil), &journal{}
		for i, name := range []string{"boot-1/7/a", "boot-1/8/b", "boot-2/7/c", "boot-2/7/d"} {
			keeper, stop := keep(t, fake, instance(name), log.logger())
			after(time.Second)
			fake.Inject(controlplanetest.RenewLease, controlplanetest.Fault{LoseAnswer: true, Times: 3})
			after(time.Minute)
			fake.Inject(controlplanetest.Any, controlplanetest.Fault{Stale: true, Times: 6})
			after(time.Minute)
			lease := stored(t, fake)
			lease.Labels = map[string]string{"noted": name}
			if _, err := fake.RenewLease(t.Context(), lease); err != nil {
				t.Fatal(err)
			}
			after(time.Minute)
			if stats := keeper.Stats(); stats.Clone != nil || stats.ConsecutiveFailures != 0 || log.count("ERROR") != 0 {
				t.Errorf("Stats() of run %d = %+v, want no clone and no failure", i, stats)
			}
			stop()
		}
	})
}

// census runs one over the fleet in fake.
func census(t *testing.T, fake *controlplanetest.Fake) (c *controlplane.Census, beats func() []error) {
	t.Helper()
	self := nodeOf(here, nil)
	self.Status.NodeInfo.BootID = "boot-1"
	c = controlplane.NewCensus(fake, fake, self, quiet())
	var mu sync.Mutex
	var told []error
	run(t, func(ctx context.Context) error {
		return c.Run(ctx, func(err error) { mu.Lock(); defer mu.Unlock(); told = append(told, err) }, func() {})
	})
	return c, func() []error { mu.Lock(); defer mu.Unlock(); return slices.Clone(told) }
}

// neighbour stores another host's Node, and keeps its Lease if it is alive.
func neighbour(t *testing.T, fake *controlplanetest.Fake, name, machineID, bootID string, alive bool) {
	t.Helper()
	node := &corev1.Node{Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{MachineID: machineID, BootID: bootID}}}
	node.Name = name
	fake.Create(node)
	p := policy(controlplane.Identity{MachineID: machineID})
	p.Node = name
	_, stop := keep(t, fake, p, quiet())
	synctest.Wait()
	if !alive {
		stop()
	}
}

func TestACensusFindsTheLivingWithThisMachinesID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := controlplanetest.NewFake(nil)
		neighbour(t, fake, "n", here.MachineID, "boot-1", true)
		neighbour(t, fake, "kubelets", here.MachineID, "boot-1", true)
		neighbour(t, fake, "dead", here.MachineID, "boot-2", false)
		neighbour(t, fake, "other", there.MachineID, "boot-3", true)
		c, beats := census(t, fake)
		after(10 * time.Minute)
		if got := c.Clones(); len(got) != 0 {
			t.Errorf("Clones() = %v, want none: itself, its kubelet, a dead one and another machine", got)
		}
		neighbour(t, fake, "copy", here.MachineID, "boot-4", true)
		after(12 * time.Hour)
		if got := c.Clones(); len(got) != 1 || got[0].Node != "copy" || !strings.Contains(got[0].Message("n"), "node copy, which is alive") {
			t.Errorf("Clones() = %v, want the copy", got)
		}
		if err := fake.Edit(t.Context(), "copy", func(n *corev1.Node) { n.Status.NodeInfo.MachineID = "mended" }); err != nil {
			t.Fatal(err)
		}
		after(15 * time.Minute)
		if got := c.Clones(); len(got) != 0 {
			t.Errorf("Clones() after the mend = %v, want none", got)
		}
		for _, err := range beats() {
			if err != nil {
				t.Errorf("beat(%v), want no failure", err)
			}
		}
	})
}

func TestACensusThatMayNotLookIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := controlplanetest.NewFake(nil)
		fake.Inject(controlplanetest.NodesOf, controlplanetest.Fault{Err: controlplane.ErrForbidden})
		c, beats := census(t, fake)
		after(24 * time.Hour)
		if n := fake.Calls(controlplanetest.NodesOf); n < 2 || n > 9 || len(c.Clones()) != 0 {
			t.Errorf("asked %d times in a day, clones %v, want a few times, and none", n, c.Clones())
		}
		for _, err := range beats() {
			if err != nil {
				t.Errorf("beat(%v), want no failure", err)
			}
		}
		fake.Inject(controlplanetest.NodesOf, controlplanetest.Fault{Err: controlplane.ErrUnavailable, Times: 1})
		after(10 * time.Hour)
		if told := beats(); !slices.ContainsFunc(told, func(err error) bool { return err != nil }) || told[len(told)-1] != nil {
			t.Errorf("beats = %v, want that one failed, and the next did not", told)
		}
	})
}
