package reboots_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

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

// cluster is a cluster with one slot and one server, in a synctest bubble.
type cluster struct {
	*testing.T
	*kubelets
	*reboots.Controller

	mu     sync.Mutex // guards the fields below
	events []reboots.Event
}

func inCluster(t *testing.T, test func(c *cluster)) {
	synctest.Test(t, func(t *testing.T) {
		test(&cluster{T: t, kubelets: &kubelets{Store: memory.New(memory.Options{})}})
	})
}

// node stores a Node that is ready.
func (c *cluster) node(name string, change ...func(*corev1.Node)) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	setReady(corev1.ConditionTrue)(node)
	for _, f := range change {
		f(node)
	}
	c.Put(store.Nodes, node)
}

// serve starts the server.
func (c *cluster) serve() { c.Controller, _ = c.serves("s", c.process()) }

// serves starts a server on a store.
func (c *cluster) serves(name string, p store.Store) (r *reboots.Controller, stop func()) {
	contact, changed, log := &store.Contact{}, loop.NewSignal(), slog.New(slog.DiscardHandler)
	cache := podcache.New(changed)
	part, err := slots.ParsePart("100%")
	if err != nil {
		c.Fatal(err)
	}
	r = reboots.New(p, slots.NewGroups(p, "hostler-system"), contact, cache, changed, reboots.Policies{"default": {Group: "default", Slots: 1, MaxUnavailable: part}}, nil, name, log)
	r.OnEvent = func(e reboots.Event) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.events = append(c.events, e)
	}
	ignore := func(error) {}
	e := election.New(p, reboots.Name, name, log)
	stop = controllertest.Run(c,
		func(ctx context.Context) error { return contact.Run(ctx, p.Ping, ignore) },
		func(ctx context.Context) error { return p.Follow(ctx, store.Nodes, store.AllChanges, r.Nodes()) },
		func(ctx context.Context) error { return p.Follow(ctx, pods, store.AllChanges, cache.Follower()) },
		func(ctx context.Context) error { return r.Run(ctx, ignore) },
		func(ctx context.Context) error { return r.RunReads(ctx, ignore) },
		func(ctx context.Context) error { return e.Run(ctx, r.Lead, ignore) },
	)
	time.Sleep(soon)
	return r, stop
}

// reasons returns the Nodes and reasons of all Events so far.
func (c *cluster) reasons() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []string
	for _, e := range c.events {
		all = append(all, e.Node+" "+e.Reason)
	}
	return strings.Join(all, ", ")
}

// TestABlockedPodIsToldAfterAWhile has a budget that does not allow an eviction, and then does.
func TestABlockedPodIsToldAfterAWhile(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.node("n1", at("r1", controlplane.RebootWaiting))
		c.pod("n1", "blocked-1")
		c.block(true)
		c.serve()
		edit(c.Store, "n1", at("r1", controlplane.RebootDraining))
		time.Sleep(4 * time.Minute)
		if n := c.evictions(); n < 20 || n > 30 {
			t.Errorf("%d requests to evict the pod in four minutes, want one every ten seconds", n)
		}
		if got, want := c.reasons(), "n1 RebootSlotGranted"; got != want {
			t.Errorf("events = %s, want %s", got, want)
		}
		time.Sleep(4 * time.Minute)
		if got, want := c.reasons(), "n1 RebootSlotGranted, n1 RebootPodBlocked"; got != want || c.events[1].Type != corev1.EventTypeWarning || !strings.Contains(c.events[1].Message, "disruption budget web") {
			t.Errorf("events = %+v, want %s", c.events, want)
		}
		r := c.Report()
		if len(r.Failing) > 0 || r.Writes.Failed > 0 || len(r.Emptying["n1"].Blocked) != 1 {
			t.Errorf("report = %+v, want a blocked pod that is no failure", r)
		}
		if g := r.Groups[0]; g.Step(g.Holders[0]) != "Draining" || !strings.Contains(g.WaitsFor(g.Holders[0]), "cannot be evicted now: 1: ns/blocked-1") {
			t.Errorf("holder = %s, %s, want what it waits for", g.Step(g.Holders[0]), g.WaitsFor(g.Holders[0]))
		}
		c.block(false)
		time.Sleep(time.Minute)
		if _, slot := read(t, c.Store, "n1"); !slot.Emptied || !strings.HasSuffix(c.reasons(), "n1 RebootNodeEmptied") {
			t.Errorf("slot = %s, events %s, want that the Node is empty", describe(slot), c.reasons())
		}
		edit(c.Store, "n1", at("r1", controlplane.RebootDone))
		time.Sleep(soon)
		if node, slot := read(t, c.Store, "n1"); slot != nil || node.Spec.Unschedulable || len(c.Report().Groups[0].Holders) > 0 || len(c.noTerm) > 0 {
			t.Errorf("in the end the slot is %s, unschedulable %t, written without a term: %q", describe(slot), node.Spec.Unschedulable, c.noTerm)
		}
	})
}

// TestHowLongANodeTakesCountsAcrossServers has a host that drains when the server starts.
func TestHowLongANodeTakesCountsAcrossServers(t *testing.T) {
	for name, c := range map[string]struct {
		since time.Duration
		fails bool
	}{
		"for half an hour":           {30 * time.Minute, false},
		"for longer than it may":     {62 * time.Minute, true},
		"since before any drain":     {30 * 24 * time.Hour, false}, // the clock of the host is wrong
		"since a time in the future": {-time.Hour, false},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(k *cluster) {
				k.node("n1", func(n *corev1.Node) {
					setRequest(n, controlplane.RebootRequest{ID: "r1", Step: controlplane.RebootDraining, Since: metav1.NewTime(time.Now().Add(-c.since)), EmptiedByServer: true})
				})
				k.pod("n1", "blocked-1")
				k.block(true)
				k.serve()
				if _, slot := read(t, k.Store, "n1"); slot == nil || slot.Failed != c.fails {
					t.Errorf("slot = %s, want that it has failed: %t", describe(slot), c.fails)
				}
				if got := strings.Contains(k.reasons(), "n1 RebootNodeNotEmptied"); got != c.fails {
					t.Errorf("events = %s, want the failure: %t", k.reasons(), c.fails)
				}
			})
		})
	}
}

// TestADeadHostGetsNoSlot has a host that requested a slot before its lease expired.
func TestADeadHostGetsNoSlot(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.node("dead", at("r1", controlplane.RebootWaiting), setReady(corev1.ConditionUnknown))
		c.node("n2", at("r1", controlplane.RebootWanted))
		c.serve()
		edit(c.Store, "n2", at("r1", controlplane.RebootWaiting))
		time.Sleep(soon)
		g := c.Report().Groups[0]
		if len(g.Holders) != 1 || g.Holders[0].ID != "n2" || len(g.Verdicts) != 1 || g.Why(g.Verdicts[0]) != "its host gives no sign of life" {
			t.Errorf("group = %+v, want that the dead one waits", g)
		}
		edit(c.Store, "n2", at("r1", controlplane.RebootDone))
		edit(c.Store, "dead", setReady(corev1.ConditionTrue))
		time.Sleep(soon)
		if g := c.Report().Groups[0]; len(g.Holders) != 1 || g.Holders[0].ID != "dead" {
			t.Errorf("group = %+v, want that it gets the slot once it is back", g)
		}
	})
}

// TestWhatCannotBeDecidedIsNamed has a request of another version, and a group that is not configured.
func TestWhatCannotBeDecidedIsNamed(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.node("n1", at("r1", controlplane.RebootWaiting))
		c.serve()
		edit(c.Store, "n1", at("r1", "Thinking"))
		c.node("n2", at("r1", controlplane.RebootWaiting), func(n *corev1.Node) { n.Labels = map[string]string{controlplane.LabelRebootGroup: "db"} })
		c.node("n3", at("r1", controlplane.RebootWaiting))
		time.Sleep(time.Minute)
		r := c.Report()
		if g := r.Groups[0]; len(g.Holders) != 1 || g.Holders[0].ID != "n1" {
			t.Errorf("group = %+v, want that n1 keeps its slot", g)
		}
		for name, want := range map[string]string{"n1": `"Thinking" is no step of a reboot`, "n2": "group \"db\", which is not in `reboots.groups`"} {
			if err := r.Broken[name]; err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %s", name, err, want)
			}
		}
		if _, slot := read(t, c.Store, "n2"); slot == nil || slot.Message != "no group db is configured on the servers" {
			t.Errorf("slot of n2 = %s, want why it gets none", describe(slot))
		}
		if slices.ContainsFunc(r.Answers, func(reboots.Answer) bool { return true }) {
			t.Errorf("answers = %+v, want none left", r.Answers)
		}
	})
}

// deaf is the store of a server. While is is true, it cannot read groups.
type deaf struct {
	*process
	is atomic.Bool
}

func (d *deaf) Get(ctx context.Context, kind store.Kind, name string) (store.Object, error) {
	if kind.Name == store.Leases.Name && d.is.Load() {
		return nil, controlplane.ErrUnavailable
	}
	return d.process.Get(ctx, kind, name)
}

// TestANewLeaderReadsTheGroupsFirst has a new leader that last read the group while n1 held the slot. Since then,
// n2 has got the slot, and n1 waits again.
func TestANewLeaderReadsTheGroupsFirst(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.node("n1", at("r1", controlplane.RebootWaiting))
		_, stop := c.serves("first", c.process())
		c.node("n2", at("r1", controlplane.RebootWaiting))
		second := &deaf{process: c.process()}
		c.serves("second", second)
		second.is.Store(true)
		edit(c.Store, "n1", at("r1", controlplane.RebootWanted))
		time.Sleep(soon)
		edit(c.Store, "n1", at("r1", controlplane.RebootWaiting))
		time.Sleep(time.Second)
		_, of1 := read(t, c.Store, "n1")
		_, of2 := read(t, c.Store, "n2")
		if of1 == nil || of1.Granted != nil || of2 == nil || of2.Granted == nil {
			t.Fatalf("slots = %s, %s, want that the second host has it", describe(of1), describe(of2))
		}
		stop()
		time.Sleep(time.Minute)
		if _, slot := read(t, c.Store, "n1"); slot.Granted != nil {
			t.Errorf("slot of n1 = %s, want none from what the leader knew before", describe(slot))
		}
		second.is.Store(false)
		time.Sleep(soon)
		edit(c.Store, "n2", at("r1", controlplane.RebootDone))
		time.Sleep(soon)
		if _, slot := read(t, c.Store, "n1"); slot.Granted == nil {
			t.Errorf("slot of n1 = %s, want that it is its turn", describe(slot))
		}
	})
}

// TestHostsThatRebootWithoutASlotAreReported has one whose slot is released, and one whose reboot is requested
// for now.
func TestHostsThatRebootWithoutASlotAreReported(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.node("n1", at("r1", controlplane.RebootWaiting))
		c.node("n2", at("r2", controlplane.RebootRebooting))
		c.node("n3", at("r3", controlplane.RebootDone))
		c.node("n4")
		c.serve()
		names := func() (list []string) {
			for _, h := range c.Report().Groups[0].WithoutSlot {
				list = append(list, h.Name+" "+h.WhyWithout())
			}
			return list
		}
		time.Sleep(time.Hour / 2)
		if _, slot := read(t, c.Store, "n1"); slot != nil && slot.Granted != nil {
			t.Errorf("slot of n1 = %s beside n2 in the first hour of the server, want none", describe(slot))
		}
		time.Sleep(time.Hour/2 + soon)
		if _, slot := read(t, c.Store, "n1"); slot == nil || slot.Granted == nil {
			t.Errorf("slot of n1 = %s after the first hour of the server, want one", describe(slot))
		}
		edit(c.Store, "n1", at("r1", controlplane.RebootVerifying))
		time.Sleep(soon)
		now := "n2 it holds no slot: the reboot was requested with --now"
		if got := names(); !slices.Equal(got, []string{now}) {
			t.Errorf("hosts without a slot = %q, want n2", got)
		}
		if err := c.Release(c.Context(), "default", "n1", "anna", "it takes long"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(soon)
		if got := names(); !slices.Equal(got, []string{"n1 it holds no slot: the slot was released", now}) {
			t.Errorf("hosts without a slot = %q, want n1 and n2", got)
		}
	})
}

func TestAServerThatHasNotReadTheNodesSaysSo(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.node("n1")
		c.serve()
		if r := c.Report(); r.Unread != nil || r.Groups[0].Members != 1 {
			t.Errorf("report = %+v, want one Node", r)
		}
		c.Inject(memory.Follow, memory.Fault{Err: controlplane.ErrUnavailable})
		other, _ := c.serves("second", c.process())
		if r := other.Report(); r.Unread == nil || r.Groups[0].Members != 0 {
			t.Errorf("report = %+v, want that the Nodes are not known", r)
		}
	})
}

// TestAReleaseIsOnTheNodeAtOnce has no leader: the server that frees the slot must write that on the Node.
func TestAReleaseIsOnTheNodeAtOnce(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.node("n1", at("r1", controlplane.RebootWaiting))
		_, stop := c.serves("first", c.process())
		edit(c.Store, "n1", at("r1", controlplane.RebootDraining))
		time.Sleep(soon)
		stop()
		c.Inject(memory.Elect, memory.Fault{Err: controlplane.ErrUnavailable})
		other, _ := c.serves("second", c.process())
		if err := other.Release(c.Context(), "default", "n1", "anna", "it is off"); err != nil {
			t.Fatal(err)
		}
		if _, slot := read(t, c.Store, "n1"); slot.Granted != nil || slot.Why != "lost" || slot.ID != "r1" {
			t.Errorf("slot = %s, want that it was lost", describe(slot))
		}
		if node, slot := read(t, c.Store, "n1"); !slot.Cordoned || !node.Spec.Unschedulable {
			t.Errorf("slot = %s, unschedulable %t, want the cordon of before", describe(slot), node.Spec.Unschedulable)
		}
		if g := other.Report().Groups[0]; len(g.Holders) != 0 || g.Releases[0].By != "anna" {
			t.Errorf("group = %+v, want the release", g)
		}
		if err := other.Release(c.Context(), "default", "n1", "anna", "it is off"); !errors.Is(err, controlplane.ErrNotFound) {
			t.Errorf("second Release() = %v, want %v", err, controlplane.ErrNotFound)
		}
	})
}

// TestAReleaseOnAnotherServerIsSeenAtOnce has a leader that gives the slot of n1 to n2 before its next read of the group.
func TestAReleaseOnAnotherServerIsSeenAtOnce(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.node("n1", at("r1", controlplane.RebootWaiting))
		c.serves("first", c.process())
		c.node("n2", at("r1", controlplane.RebootWaiting))
		other, _ := c.serves("second", c.process())
		for range 3 { // at other moments between two reads
			for _, name := range []string{"n1", "n2"} {
				if err := other.Release(c.Context(), "default", name, "anna", "it is off"); err != nil {
					t.Fatal(err)
				}
				next := map[string]string{"n1": "n2", "n2": "n1"}[name]
				time.Sleep(3 * time.Second)
				if _, slot := read(t, c.Store, next); slot == nil || slot.Granted == nil {
					t.Errorf("slot of %s = %s three seconds after the release, want that it has it", next, describe(slot))
				}
				edit(c.Store, name, at("r1", controlplane.RebootWanted))
				time.Sleep(soon)
				edit(c.Store, name, at("r1", controlplane.RebootWaiting))
				time.Sleep(soon)
			}
		}
	})
}

// TestARefusedReleaseIsTriedAFewTimes has a Node that other clients change all the time.
func TestARefusedReleaseIsTriedAFewTimes(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.node("n1", at("r1", controlplane.RebootWaiting))
		c.serve()
		c.Inject(memory.Update, memory.Fault{Err: controlplane.ErrConflict})
		before := c.Calls(memory.Update)
		if err := c.Release(c.Context(), "default", "n1", "anna", "it is off"); !errors.Is(err, controlplane.ErrConflict) {
			t.Errorf("Release() = %v, want %v", err, controlplane.ErrConflict)
		}
		if n := c.Calls(memory.Update) - before; n != 5 {
			t.Errorf("%d writes, want five attempts", n)
		}
	})
}

// TestAnAnswerOfAnOldServerIsNamed has a Node that says that its slot was released, without the name of the slot.
func TestAnAnswerOfAnOldServerIsNamed(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.node("n1", at("r1", controlplane.RebootWaiting))
		_, stop := c.serves("first", c.process())
		_, slot := read(t, c.Store, "n1")
		name := slot.Slot
		stop()
		edit(c.Store, "n1", func(n *corev1.Node) { setSlotText(n, &controlplane.RebootSlot{ID: "r1", Why: "lost"}) })
		c.Inject(memory.Elect, memory.Fault{Err: controlplane.ErrUnavailable})
		other, _ := c.serves("second", c.process())
		if err := other.Release(c.Context(), "default", "n1", "anna", "it is off"); err != nil {
			t.Fatal(err)
		}
		if _, slot := read(t, c.Store, "n1"); slot.Slot != name || slot.Why != "lost" || slot.Granted != nil {
			t.Errorf("slot = %s, want that %s was lost", describe(slot), name)
		}
	})
}

// failing is a store that evicts no pod.
type failing struct{ *process }

// Evict implements store.Evicter.
func (failing) Evict(context.Context, string, types.UID, store.Term) error {
	return errors.New("the webhook does not answer")
}

// TestAnEvictionThatFailsIsReported has an API server that cannot evict a pod.
func TestAnEvictionThatFailsIsReported(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.node("n1", at("r1", controlplane.RebootDraining))
		c.pod("n1", "p")
		s, _ := c.serves("s", failing{c.process()})
		time.Sleep(soon)
		if b := s.Report().Emptying["n1"].Blocked; len(b) != 1 || b[0].Message != "the webhook does not answer" {
			t.Errorf("blocked = %+v, want the pod, and why", b)
		}
	})
}

// TestANodeThatAPersonHasCordonedIsEmptyAtOnce has a Node without pods, and without an answer of before.
func TestANodeThatAPersonHasCordonedIsEmptyAtOnce(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.node("n1", at("r1", controlplane.RebootDraining), func(n *corev1.Node) { n.Spec.Unschedulable = true })
		c.serve()
		if node, slot := read(t, c.Store, "n1"); slot == nil || !slot.Emptied || slot.Cordoned || !node.Spec.Unschedulable {
			t.Errorf("slot = %s, want that the Node is empty, and the cordon is not ours", describe(slot))
		}
	})
}

// TestRequestsThatAreNotRecordedAreCounted has no leader.
func TestRequestsThatAreNotRecordedAreCounted(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.Inject(memory.Elect, memory.Fault{Err: controlplane.ErrUnavailable})
		for _, name := range []string{"n1", "n2", "n3"} {
			c.node(name, at("r1", controlplane.RebootWaiting))
		}
		c.serve()
		if got := c.Report().Groups[0].Unrecorded; got != 3 {
			t.Errorf("Unrecorded = %d, want 3", got)
		}
		c.Heal()
		time.Sleep(time.Minute)
		if got := c.Report().Groups[0]; got.Unrecorded != 0 || len(got.Waiting) != 2 {
			t.Errorf("Unrecorded = %d, waiting = %+v, want that two wait", got.Unrecorded, got.Waiting)
		}
	})
}

// TestAPodThatNoWatchHasReportedIsWaitedFor has a pod that was bound to the Node right before the cordon.
func TestAPodThatNoWatchHasReportedIsWaitedFor(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.hidden = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "late"}}
		c.node("n1", at("r1", controlplane.RebootDraining))
		c.serve()
		if _, slot := read(t, c.Store, "n1"); slot == nil || slot.Emptied || !slot.Cordoned {
			t.Errorf("slot = %s, want that the Node is cordoned and not empty", describe(slot))
		}
		c.kubelets.mu.Lock()
		c.hidden = nil
		c.kubelets.mu.Unlock()
		time.Sleep(soon)
		if _, slot := read(t, c.Store, "n1"); !slot.Emptied {
			t.Errorf("slot = %s, want that the Node is empty", describe(slot))
		}
	})
}

// TestAHostIsToldOnceWhyItWaits has hosts that request the slot at the same moment.
func TestAHostIsToldOnceWhyItWaits(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.serve()
		for _, name := range []string{"n1", "n2", "n3"} {
			c.node(name, at("r1", controlplane.RebootWaiting))
		}
		time.Sleep(soon)
		for _, name := range []string{"n2", "n3"} {
			if _, slot := read(t, c.Store, name); slot == nil || !strings.HasPrefix(slot.Message, "all slots of the group are held: n1 since ") {
				t.Errorf("slot of %s = %s, want who holds it", name, describe(slot))
			}
		}
		if got := c.Report().Writes.Stored; got != 5 {
			t.Errorf("%d writes, want two of the group, for the requests and the slot, and one for each Node", got)
		}
	})
}

// TestAWaitingHostNamesTheHolder gives one slot to several hosts in turn.
func TestAWaitingHostNamesTheHolder(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.serve()
		for _, name := range []string{"n1", "n2", "n3"} {
			c.node(name, at("r1", controlplane.RebootWaiting))
			time.Sleep(soon)
		}
		for _, holder := range []string{"n1", "n2"} {
			if _, slot := read(t, c.Store, "n3"); slot == nil || !strings.HasPrefix(slot.Message, "all slots of the group are held: "+holder+" since ") {
				t.Errorf("slot of n3 = %s, want that %s holds it", describe(slot), holder)
			}
			edit(c.Store, holder, at("r1", controlplane.RebootDone))
			time.Sleep(soon)
		}
	})
}

// TestManyWaitingHostsCostFewWrites has hosts that reboot one after the other. Only the first ten of those that wait
// name the holder.
func TestManyWaitingHostsCostFewWrites(t *testing.T) {
	inCluster(t, func(c *cluster) {
		const hosts, named = 60, 10
		c.serve()
		var names []string
		for i := range hosts {
			name := fmt.Sprintf("n%02d", i)
			names = append(names, name)
			c.node(name, at("r1", controlplane.RebootWaiting))
			time.Sleep(time.Second)
		}
		time.Sleep(soon)
		begun := c.Report().Writes.Stored
		for len(names) > 20 {
			for i, name := range names[1:] {
				_, slot := read(t, c.Store, name)
				want := "all slots of the group are held: " + names[0] + " since "
				if i >= named {
					want = "older requests of the group wait"
				}
				if slot == nil || !strings.HasPrefix(slot.Message, want) {
					t.Fatalf("slot of %s = %s, want %q", name, describe(slot), want)
				}
			}
			edit(c.Store, names[0], at("r1", controlplane.RebootDone))
			names = names[1:]
			time.Sleep(soon)
		}
		// Each reboot writes the group and the Node of the host twice, and the Nodes of the first waiting hosts.
		if got, want := c.Report().Writes.Stored-begun, (hosts-20)*(4+named); got > uint64(want) {
			t.Errorf("%d writes for %d reboots, want at most %d", got, hosts-20, want)
		}
	})
}

// TestTheRequestOfAnAgentIsNotReleased has a person who releases the slot of a host that only waits for one.
func TestTheRequestOfAnAgentIsNotReleased(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.serve()
		for _, name := range []string{"n1", "n2"} {
			c.node(name, at("r1", controlplane.RebootWaiting))
			time.Sleep(soon)
		}
		if err := c.Release(c.Context(), "default", "n2", "anna", "by mistake"); !errors.Is(err, reboots.ErrAsks) {
			t.Errorf("Release() = %v, want %v", err, reboots.ErrAsks)
		}
		if err := c.Release(c.Context(), "default", "n1", "anna", "it is gone"); err != nil {
			t.Errorf("Release() of the holder = %v, want no error", err)
		}
	})
}
