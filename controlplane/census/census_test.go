package census_test

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/census"
	"hostler.io/hostler/controlplane/controlplanetest"
)

// Machine IDs of this host, and of another.
const here, there = "machine-1", "machine-2"

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func nodeOf(name, machineID, bootID string) *corev1.Node {
	node := &corev1.Node{Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{MachineID: machineID, BootID: bootID}}}
	node.Name = name
	return node
}

// runs runs a loop until the returned function is called.
func runs(t *testing.T, loop func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() { _ = loop(ctx) })
	stop = sync.OnceFunc(func() { cancel(); done.Wait() })
	t.Cleanup(stop)
	return stop
}

// after lets time pass and everything that is due happen.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// run runs a census over the fleet in fake.
func run(t *testing.T, fake *controlplanetest.Fake) (c *census.Census, heartbeats func() []error) {
	t.Helper()
	c = census.New(fake, fake, nodeOf("n", here, "boot-1"), quiet())
	var mu sync.Mutex
	var reported []error
	runs(t, func(ctx context.Context) error {
		return c.Run(ctx, func(err error) { mu.Lock(); defer mu.Unlock(); reported = append(reported, err) }, func() {})
	})
	return c, func() []error { mu.Lock(); defer mu.Unlock(); return slices.Clone(reported) }
}

// peer stores another host's Node, and keeps its Lease if it is alive.
func peer(t *testing.T, fake *controlplanetest.Fake, name, machineID, bootID string, alive bool) {
	t.Helper()
	fake.Create(nodeOf(name, machineID, bootID))
	keeper, err := controlplane.NewLeaseKeeper(fake, controlplane.LeasePolicy{
		Node: name, Holder: controlplane.Identity{MachineID: machineID}, Duration: 40 * time.Second, Interval: 10 * time.Second,
	}, quiet())
	if err != nil {
		t.Fatal(err)
	}
	stop := runs(t, keeper.Run)
	synctest.Wait()
	if !alive {
		stop()
	}
}

func TestACensusFindsTheLivingWithThisMachinesID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := controlplanetest.NewFake(nil)
		peer(t, fake, "n", here, "boot-1", true)
		peer(t, fake, "kubelets", here, "boot-1", true)
		peer(t, fake, "dead", here, "boot-2", false)
		peer(t, fake, "other", there, "boot-3", true)
		c, heartbeats := run(t, fake)
		after(10 * time.Minute)
		if got := c.Clones(); len(got) != 0 {
			t.Errorf("Clones() = %v, want none: itself, its kubelet, a dead one and another machine", got)
		}
		peer(t, fake, "copy", here, "boot-4", true)
		after(12 * time.Hour)
		if got := c.Clones(); len(got) != 1 || got[0].Node != "copy" || !strings.Contains(got[0].Message("n"), "running node copy") {
			t.Errorf("Clones() = %v, want the copy", got)
		}
		if err := fake.Edit(t.Context(), "copy", func(n *corev1.Node) { n.Status.NodeInfo.MachineID = "mended" }); err != nil {
			t.Fatal(err)
		}
		after(15 * time.Minute)
		if got := c.Clones(); len(got) != 0 {
			t.Errorf("Clones() after the fix = %v, want none", got)
		}
		for _, err := range heartbeats() {
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
		c, heartbeats := run(t, fake)
		after(24 * time.Hour)
		if n := fake.Calls(controlplanetest.NodesOf); n < 2 || n > 9 || len(c.Clones()) != 0 {
			t.Errorf("asked %d times in a day, clones %v, want a few times, and none", n, c.Clones())
		}
		for _, err := range heartbeats() {
			if err != nil {
				t.Errorf("beat(%v), want no failure", err)
			}
		}
		fake.Inject(controlplanetest.NodesOf, controlplanetest.Fault{Err: controlplane.ErrUnavailable, Times: 1})
		after(10 * time.Hour)
		if reported := heartbeats(); !slices.ContainsFunc(reported, func(err error) bool { return err != nil }) || reported[len(reported)-1] != nil {
			t.Errorf("beats = %v, want that one failed, and the next did not", reported)
		}
	})
}
