package reboots_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controllers/controllertest"
	"hostler.io/hostler/controlplane/controllers/podcache"
	"hostler.io/hostler/controlplane/controllers/reboots"
	"hostler.io/hostler/controlplane/election"
	"hostler.io/hostler/controlplane/slots"
	"hostler.io/hostler/controlplane/store"
	"hostler.io/hostler/controlplane/store/memory"
	"hostler.io/hostler/internal/loop"
)

// soon is the time after which a change must be visible.
const soon = 15 * time.Second

// rig is a fleet in a store, in a bubble of synctest.
type rig struct {
	*testing.T
	store *memory.Store
}

func inBubble(t *testing.T, test func(rig)) {
	synctest.Test(t, func(t *testing.T) { test(rig{t, memory.New(memory.Options{EndsLeases: true})}) })
}

// serve starts a server on a store. The end of the test stops it.
func (r rig) serve(name string, s store.Store) *reboots.Controller {
	r.Helper()
	part, err := slots.ParsePart("0")
	if err != nil {
		r.Fatal(err)
	}
	return r.serveGroups(name, s, reboots.Policies{"default": {Group: "default", Slots: 2, OneZoneAtATime: true, MaxUnavailable: part}})
}

// serveGroups starts a server with these groups.
func (r rig) serveGroups(name string, s store.Store, policies reboots.Policies) *reboots.Controller {
	return r.serveAs(name, s, policies, slog.New(slog.DiscardHandler))
}

// serveAs starts a server with a log, which is changed before it runs.
func (r rig) serveAs(name string, s store.Store, policies reboots.Policies, log *slog.Logger, change ...func(*reboots.Controller)) *reboots.Controller {
	contact := &store.Contact{}
	c := reboots.New(s, slots.NewGroups(s, ""), contact, podcache.New(), loop.NewSignal(), policies, []string{"zone"}, name, log)
	for _, f := range change {
		f(c)
	}
	e := election.New(s, reboots.Name, name, log)
	ignore := func(error) {}
	controllertest.Run(r,
		func(ctx context.Context) error { return contact.Run(ctx, s.Ping, ignore) },
		func(ctx context.Context) error { return s.Follow(ctx, store.Nodes, store.AllChanges, c.Nodes()) },
		func(ctx context.Context) error { return c.Run(ctx, ignore) },
		func(ctx context.Context) error { return c.RunReads(ctx, ignore) },
		func(ctx context.Context) error { return e.Run(ctx, c.Lead, ignore) },
	)
	time.Sleep(soon)
	return c
}

// node stores a Node, and returns it.
func (r rig) node(name, zone string, ready corev1.ConditionStatus, change ...func(*corev1.Node)) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"zone": zone}}}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}
	node.Status.NodeInfo.BootID = "boot-1"
	for _, c := range change {
		c(node)
	}
	r.store.Put(store.Nodes, node)
	time.Sleep(soon)
}

// asks requests a slot, and returns why there is none; empty for a slot.
func (r rig) asks(c *reboots.Controller, id string) slots.WaitReason {
	r.Helper()
	wait, err := c.Request(r.Context(), "default", id)
	if err != nil {
		r.Fatalf("Request(%s) = %v", id, err)
	}
	if wait == nil {
		return ""
	}
	return wait.Reason
}

// want checks who holds slots.
func (r rig) want(what string, holders ...string) slots.State {
	r.Helper()
	time.Sleep(soon)
	s, err := slots.NewGroups(r.store, "").Get(r.Context(), "default")
	if err != nil {
		r.Fatal(err)
	}
	ok := len(s.Holders) == len(holders)
	for _, id := range holders {
		ok = ok && s.Holder(id) != nil
	}
	if !ok {
		r.Errorf("%s: holders = %+v, want %q", what, s.Holders, holders)
	}
	return s
}

func TestTheSlotOfADeletedNodeIsFreed(t *testing.T) {
	inBubble(t, func(r rig) {
		r.node("n1", "a", corev1.ConditionTrue)
		r.node("n2", "a", corev1.ConditionTrue)
		leader := r.serve("server-1", r.store)
		other := r.serve("server-2", r.store)
		for id, c := range map[string]*reboots.Controller{"n1": leader, "n2": other} {
			if why := r.asks(c, id); why != "" {
				t.Fatalf("%s gets no slot: %s", id, why)
			}
		}
		r.store.Relist()
		r.want("after a list", "n1", "n2")
		time.Sleep(26 * time.Hour)
		r.want("after a day", "n1", "n2")

		r.store.Inject(memory.Get, memory.Fault{Err: controlplane.ErrUnavailable})
		r.store.Remove(store.Nodes, "n1")
		time.Sleep(time.Minute)
		r.store.Heal()
		time.Sleep(time.Minute)
		s := r.want("without its Node", "n2")
		if got := s.Releases[0]; got.ID != "n1" || got.Cause != slots.NodeDeleted || got.By != "server-1" {
			t.Errorf("release = %+v, want the Node that was deleted, by the leader", got)
		}

		r.store.Remove(store.Nodes, "n2")
		r.node("n2", "a", corev1.ConditionTrue) // immediately, with another UID
		r.want("with another Node of its name")
	})
}

// TestANodeThatIsStillThereKeepsItsSlot has a server whose watch wrongly reports a deletion.
func TestANodeThatIsStillThereKeepsItsSlot(t *testing.T) {
	inBubble(t, func(r rig) {
		r.node("n1", "a", corev1.ConditionTrue)
		c := r.serve("server-1", r.store)
		if why := r.asks(c, "n1"); why != "" {
			t.Fatalf("n1 gets no slot: %s", why)
		}
		c.Nodes().Delete("n1")
		s := r.want("after a wrong report", "n1")
		if writes := c.Report().Writes; len(s.Releases) > 0 || writes.Stored > 0 || writes.Failed > 0 {
			t.Errorf("releases = %+v, writes = %+v, want none", s.Releases, writes)
		}
	})
}

func TestWhatIsKnownOfNodesDecides(t *testing.T) {
	inBubble(t, func(r rig) {
		r.node("n1", "a", corev1.ConditionTrue)
		r.node("n2", "b", corev1.ConditionTrue)
		r.node("n3", "a", corev1.ConditionFalse, func(n *corev1.Node) { n.Labels[controlplane.LabelRebootGroup] = "other" })
		r.node("n4", "a", corev1.ConditionUnknown, func(n *corev1.Node) { n.Labels["node.kubernetes.io/exclude-disruption"] = "" })
		r.store.PutRaw(store.Nodes, "broken", []byte("{"))
		c := r.serve("server-1", r.store)
		if why := r.asks(c, "n1"); why != "" {
			t.Errorf("n1 gets no slot: %s", why)
		}
		if why := r.asks(c, "n2"); why != slots.OtherZone {
			t.Errorf("n2 gets %q, want %q", why, slots.OtherZone)
		}
		r.node("n1", "a", corev1.ConditionFalse) // n1 reboots
		g := c.Report().Groups[0]
		if g.Members != 2 || len(g.NotReady) != 0 || g.Note(g.Holders[0]) != "its Node is not Ready, and has not booted since" {
			t.Errorf("group = %+v, %q, want two Nodes, none not ready but the holder", g, g.Note(g.Holders[0]))
		}
		r.node("n1", "a", corev1.ConditionTrue, func(n *corev1.Node) { n.Status.NodeInfo.BootID = "boot-2" })
		if g := c.Report().Groups[0]; g.Note(g.Holders[0]) != "its Node is Ready, and has booted since" {
			t.Errorf("note = %q, want that it has booted", g.Note(g.Holders[0]))
		}
		if err := c.GiveBack(r.Context(), "default", "n1"); err != nil {
			t.Error(err)
		}
		r.node("n1", "a", corev1.ConditionFalse)
		if why := r.asks(c, "n2"); why != slots.Unavailable {
			t.Errorf("n2 gets %q beside a Node that is not ready, want %q", why, slots.Unavailable)
		}
	})
}

func TestNothingIsGivenWhileNodesAreUnknown(t *testing.T) {
	inBubble(t, func(r rig) {
		r.store.Inject(memory.Follow, memory.Fault{Err: controlplane.ErrUnavailable})
		c := r.serve("server-1", r.store)
		if wait, err := c.Request(r.Context(), "default", "n1"); !errors.Is(err, controlplane.ErrUnavailable) {
			t.Errorf("Request() = %v, %v, want an error that is %q", wait, err, controlplane.ErrUnavailable)
		}
		r.want("without Nodes")
		r.store.Heal()
		time.Sleep(soon)
		if why := r.asks(c, "n1"); why != "" {
			t.Errorf("n1 gets no slot: %s", why)
		}
	})
}
