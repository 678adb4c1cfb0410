package lifecycle_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controllers/lifecycle"
	"hostler.io/hostler/controlplane/controllers/podcache"
	"hostler.io/hostler/controlplane/election"
	"hostler.io/hostler/controlplane/store"
	"hostler.io/hostler/controlplane/store/memory"
	"hostler.io/hostler/internal/loop"
)

const leaseDuration = 40 * time.Second

// fakes are hosts whose agents report to a store.
type fakes struct {
	t     *testing.T
	store *memory.Store
	seen  store.Store // the store of servers, if it is another one
	left  *left       // what the server before has left; nil for nothing
}

// left is what a server leaves to the next one.
type left struct {
	lifecycle.Silence
	taken time.Time
}

// refusing is a store that refuses updates of one object.
type refusing struct {
	*memory.Store
	name string
	err  atomic.Pointer[error]
}

// Update implements store.Store.
func (r *refusing) Update(ctx context.Context, kind store.Kind, name string, pre store.Preconditions, edit func(store.Object) error) (store.Object, error) {
	if err := r.err.Load(); err != nil && name == r.name {
		return nil, *err
	}
	return r.Store.Update(ctx, kind, name, pre, edit)
}

// server is one replica.
type server struct {
	*lifecycle.Controller
	election *election.Election
	stop     func()
}

// serve starts a replica. The end of the test stops it.
func (f fakes) serve(name string, policy lifecycle.Policy) *server {
	ctx, cancel := context.WithCancel(f.t.Context())
	log := slog.New(slog.DiscardHandler)
	contact := &store.Contact{}
	if f.seen == nil {
		f.seen = f.store
	}
	marks := loop.NewSignal()
	pods := podcache.New(marks)
	s := &server{
		Controller: lifecycle.New(f.seen, contact, policy, lifecycle.DefaultZoneLabels(), pods, marks, log),
		election:   election.New(f.store, lifecycle.Name, name, log),
	}
	if f.left != nil {
		s.Resume(f.left.Silence, f.left.taken)
	}
	ended := make(chan struct{})
	ignore := func(error) {}
	loops := []func() error{
		func() error { return contact.Run(ctx, f.store.Ping, ignore) },
		func() error {
			return follow(ctx, func(ctx context.Context) error { return f.seen.Follow(ctx, store.Nodes, store.AllChanges, s.Nodes()) })
		},
		func() error {
			return follow(ctx, func(ctx context.Context) error { return f.seen.Follow(ctx, store.Leases, store.AllChanges, s.Leases()) })
		},
		func() error {
			return follow(ctx, func(ctx context.Context) error {
				return f.seen.Follow(ctx, store.Pods(f.seen.EndsLeases()), store.AllChanges, pods.Follower())
			})
		},
		func() error { return s.Run(ctx, ignore) },
		func() error { return s.RunMarks(ctx, ignore) },
		func() error { return s.election.Run(ctx, s.Lead, ignore) },
	}
	for _, run := range loops {
		go func() {
			defer func() { ended <- struct{}{} }()
			if err := run(); ctx.Err() == nil {
				f.t.Errorf("a loop of server %s has ended: %v", name, err)
			}
		}()
	}
	stopped := false
	s.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		for range loops {
			<-ended
		}
	}
	f.t.Cleanup(s.stop)
	return s
}

// follow restarts run when the store is lost, as loops do.
func follow(ctx context.Context, run func(context.Context) error) error {
	for {
		err := run(ctx)
		if ctx.Err() != nil {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// readyNode returns the Node of a host that is ready.
func readyNode(name, zone string) *corev1.Node {
	now := metav1.Now()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelTopologyZone: zone}}}
	for _, kind := range []corev1.NodeConditionType{corev1.NodeReady, corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure} {
		status := corev1.ConditionFalse
		if kind == corev1.NodeReady {
			status = corev1.ConditionTrue
		}
		node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{Type: kind, Status: status, LastHeartbeatTime: now, LastTransitionTime: now, Reason: "Ok"})
	}
	return node
}

// report writes what an agent writes: the status. All other fields stay.
func (f fakes) report(name, zone string, edits ...func(*corev1.Node)) {
	node := readyNode(name, zone)
	if stored, err := f.store.Get(f.t.Context(), store.Nodes, name); err == nil {
		status := node.Status
		node = stored.(*corev1.Node)
		node.Status = status
	}
	for _, edit := range edits {
		edit(node)
	}
	f.store.Put(store.Nodes, node)
}

// renew renews the Lease of a host.
func (f fakes) renew(name string) {
	seconds, now := int32(leaseDuration/time.Second), metav1.NowMicro()
	f.store.Put(store.Leases, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: name},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &name, LeaseDurationSeconds: &seconds, RenewTime: &now},
	})
}

// agent starts an agent, and returns a function that kills it.
func (f fakes) agent(name, zone string) (kill func()) {
	ctx, cancel := context.WithCancel(f.t.Context())
	ended := make(chan struct{})
	f.renew(name)
	f.report(name, zone)
	go func() {
		defer close(ended)
		for {
			select {
			case <-time.After(10 * time.Second):
				f.renew(name)
			case <-ctx.Done():
				return
			}
		}
	}()
	kill = func() {
		cancel()
		<-ended
	}
	f.t.Cleanup(kill)
	return kill
}

// node reads a Node.
func (f fakes) node(name string) *corev1.Node {
	f.t.Helper()
	stored, err := f.store.Get(context.Background(), store.Nodes, name)
	if err != nil {
		f.t.Fatal(err)
	}
	return stored.(*corev1.Node)
}

// state returns Ready and the taints of a Node, as text.
func (f fakes) state(name string) string {
	f.t.Helper()
	node := f.node(name)
	var parts []string
	for _, t := range node.Spec.Taints {
		parts = append(parts, strings.TrimPrefix(t.Key, "node.kubernetes.io/")+":"+string(t.Effect))
	}
	slices.Sort(parts)
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			parts = append([]string{string(c.Status)}, parts...)
		}
	}
	return strings.Join(parts, " ")
}

const (
	stateReady = "True"
	stateGone  = "Unknown unreachable:NoExecute unreachable:NoSchedule"
)

// want checks the state of a Node.
func (f fakes) want(name, state string) {
	f.t.Helper()
	if got := f.state(name); got != state {
		f.t.Errorf("%s is %q, want %q", name, got, state)
	}
}

// inBubble runs a test with a store of either kind.
func inBubble(t *testing.T, endsLeases bool, test func(t *testing.T, f fakes)) {
	synctest.Test(t, func(t *testing.T) {
		test(t, fakes{t: t, store: memory.New(memory.Options{EndsLeases: endsLeases})})
	})
}

func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestAHostThatDiesIsUnknownAfterTheDurationOfItsLease(t *testing.T) {
	inBubble(t, true, func(t *testing.T, f fakes) {
		for i := range 3 {
			f.agent(fmt.Sprintf("alive%d", i), "a")
		}
		kill := f.agent("h", "a")
		f.serve("s", lifecycle.DefaultPolicy())
		pass(time.Minute)
		f.want("h", stateReady)
		kill()
		pass(leaseDuration - 11*time.Second)
		f.want("h", stateReady)
		pass(15 * time.Second)
		f.want("h", stateGone)
		node := f.node("h")
		for _, c := range node.Status.Conditions {
			if c.Status != corev1.ConditionUnknown || c.Reason != "NodeStatusUnknown" {
				t.Errorf("condition %s is %s (%s), want Unknown (NodeStatusUnknown)", c.Type, c.Status, c.Reason)
			}
		}
		// The Lease may be renewed before or after the status.
		f.renew("h")
		f.report("h", "a")
		pass(time.Second)
		f.want("h", stateReady)
	})
}

func TestAHostThatReportsBeforeItRenewsIsAlive(t *testing.T) {
	inBubble(t, true, func(t *testing.T, f fakes) {
		f.agent("alive", "a")
		kill := f.agent("h", "a")
		f.serve("s", lifecycle.DefaultPolicy())
		pass(time.Minute)
		kill()
		pass(leaseDuration + 5*time.Second)
		f.want("h", stateGone)
		f.report("h", "a")
		pass(3 * time.Second)
		f.want("h", stateReady)
		f.agent("h", "a")
		pass(time.Minute)
		f.want("h", stateReady)
		if n := f.node("h").ResourceVersion; n == "" {
			t.Error("no version")
		}
	})
}

func TestAHostThatIsInstalledAgainIsAlive(t *testing.T) {
	inBubble(t, true, func(t *testing.T, f fakes) {
		f.agent("alive", "a")
		kill := f.agent("h", "a")
		f.serve("s", lifecycle.DefaultPolicy())
		pass(time.Minute)
		kill()
		pass(leaseDuration + 5*time.Second)
		f.want("h", stateGone)
		f.store.Remove(store.Nodes, "h")
		pass(time.Second)
		f.agent("h", "a")
		before := f.node("h").ResourceVersion
		pass(5 * time.Minute)
		f.want("h", stateReady)
		if after := f.node("h").ResourceVersion; after != before {
			t.Errorf("the Node was written: version %s became %s", before, after)
		}
	})
}

func TestAHostIsJudgedByItsRenewalsWhereTheStoreEndsNoLeases(t *testing.T) {
	inBubble(t, false, func(t *testing.T, f fakes) {
		for i := range 3 {
			f.agent(fmt.Sprintf("alive%d", i), "a")
		}
		kill := f.agent("h", "a")
		f.serve("s", lifecycle.DefaultPolicy())
		pass(time.Minute)
		kill()
		pass(39 * time.Second)
		f.want("h", stateReady)
		pass(13 * time.Second)
		f.want("h", stateGone)
		f.report("h", "a")
		f.renew("h")
		pass(time.Second)
		f.want("h", stateReady)
	})
}

// Clocks of hosts differ by hours and prove nothing.
func TestTheClockOfAHostProvesNothing(t *testing.T) {
	inBubble(t, false, func(t *testing.T, f fakes) {
		f.agent("alive", "a")
		f.agent("h", "a")
		f.serve("s", lifecycle.DefaultPolicy())
		for i := range 20 {
			pass(10 * time.Second)
			seconds, at := int32(40), metav1.NewMicroTime(time.Now().Add(-time.Duration(i)*time.Hour))
			f.store.Put(store.Leases, &coordinationv1.Lease{
				ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: "h"},
				Spec:       coordinationv1.LeaseSpec{LeaseDurationSeconds: &seconds, RenewTime: &at},
			})
			f.want("h", stateReady)
		}
	})
}

func TestANodeMadeByHandIsMarkedAfterTheStartupGracePeriodAndKept(t *testing.T) {
	for _, ends := range []bool{true, false} {
		t.Run(fmt.Sprintf("store ends leases %v", ends), func(t *testing.T) {
			inBubble(t, ends, func(t *testing.T, f fakes) {
				f.agent("alive", "a")
				f.serve("s", lifecycle.DefaultPolicy())
				pass(time.Minute)
				f.store.Put(store.Nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "byhand"}})
				pass(59 * time.Second)
				f.want("byhand", "")
				pass(5 * time.Second)
				f.want("byhand", stateGone)
				if c := f.node("byhand").Status.Conditions[0]; c.Reason != "NodeStatusNeverUpdated" {
					t.Errorf("reason %s, want NodeStatusNeverUpdated", c.Reason)
				}
				pass(24 * time.Hour)
				f.want("byhand", stateGone)
			})
		})
	}
}

// All Leases expire while the store stalls for a minute, like an etcd that was stopped.
func TestHostsThatCouldNotRenewWhileTheStoreStalledAreNotMarked(t *testing.T) {
	for _, ends := range []bool{true, false} {
		t.Run(fmt.Sprintf("store ends leases %v", ends), func(t *testing.T) {
			inBubble(t, ends, func(t *testing.T, f fakes) {
				names := []string{"h0", "h1", "h2", "h3"}
				var kills []func()
				for _, name := range names {
					kills = append(kills, f.agent(name, "a"))
				}
				f.serve("s", lifecycle.DefaultPolicy())
				pass(time.Minute)
				for _, kill := range kills { // they cannot renew either
					kill()
				}
				stalled := make(chan struct{})
				f.store.Inject(memory.Any, memory.Fault{Until: stalled})
				pass(time.Minute)
				f.store.Heal()
				close(stalled)
				for i, name := range names[:3] {
					pass(time.Duration(i) * 3 * time.Second)
					f.agent(name, "a")
					for _, name := range names {
						f.want(name, stateReady)
					}
				}
				pass(45 * time.Second)
				for _, name := range names[:3] {
					f.want(name, stateReady)
				}
				pass(10 * time.Second)
				f.want("h3", stateGone) // this host has died meanwhile
			})
		})
	}
}

func TestADeposedLeaderWritesNothing(t *testing.T) {
	inBubble(t, true, func(t *testing.T, f fakes) {
		f.agent("alive", "a")
		kill := f.agent("h", "a")
		f.serve("s", lifecycle.DefaultPolicy())
		pass(time.Minute)
		kill()
		term, _, err := f.store.Elect(t.Context(), lifecycle.Name, "other", time.Hour)
		if err != nil || term != (store.Term{}) {
			t.Fatalf("Elect() = %v, %v, want the server to lead", term, err)
		}
		f.store.Depose(lifecycle.Name)
		if term, _, err = f.store.Elect(t.Context(), lifecycle.Name, "other", time.Hour); err != nil || term == (store.Term{}) {
			t.Fatalf("Elect() = %v, %v, want a term", term, err)
		}
		pass(10 * time.Minute)
		f.want("h", stateReady)
		if err := f.store.Resign(t.Context(), term); err != nil {
			t.Fatal(err)
		}
		pass(5 * time.Second)
		f.want("h", stateGone)
	})
}

func TestASecondServerTakesOver(t *testing.T) {
	inBubble(t, true, func(t *testing.T, f fakes) {
		for i := range 8 {
			f.agent(fmt.Sprintf("alive%d", i), "a")
		}
		var kills []func()
		for i := range 4 {
			kills = append(kills, f.agent(fmt.Sprintf("h%d", i), "a"))
		}
		first := f.serve("first", lifecycle.DefaultPolicy())
		pass(3 * time.Second)
		second := f.serve("second", lifecycle.DefaultPolicy())
		pass(time.Minute)
		for _, kill := range kills {
			kill()
		}
		pass(leaseDuration + 2*time.Second)
		for _, s := range []*server{first, second} {
			if got, want := s.election.Status().Leading, s == first; got != want {
				t.Fatalf("leading = %v, want %v", got, want)
			}
		}
		var due []time.Time
		for _, p := range second.Report().Decision.Pending {
			due = append(due, p.Due)
		}
		if len(due) == 0 {
			t.Fatal("nothing is pending on the second server")
		}
		first.stop()
		pass(3 * time.Second) // the first server has resigned
		if !second.election.Status().Leading {
			t.Fatal("the second server does not lead")
		}
		for _, p := range second.Report().Decision.Pending {
			if !slices.ContainsFunc(due, func(d time.Time) bool { return d.Sub(p.Due).Abs() < time.Second }) {
				t.Errorf("%s is due at %v; before the change one of %v was", p.Node, p.Due, due)
			}
		}
		added := map[string][]corev1.Taint{} // taints of the hosts that have all of them; any host may be the first
		for i := range 4 {
			if name := fmt.Sprintf("h%d", i); f.state(name) == stateGone {
				added[name] = f.node(name).Spec.Taints
			}
		}
		if len(added) == 0 {
			t.Error("the first server has tainted nobody")
		}
		pass(time.Minute)
		for i := range 4 {
			f.want(fmt.Sprintf("h%d", i), stateGone)
		}
		for name, before := range added {
			if got := f.node(name).Spec.Taints; !slices.EqualFunc(got, before, func(a, b corev1.Taint) bool { return a.TimeAdded.Equal(b.TimeAdded) }) {
				t.Errorf("taints of %s = %v, want %v as before", name, got, before)
			}
		}
	})
}

func TestANodeThatCannotBeWrittenStopsNoOther(t *testing.T) {
	inBubble(t, true, func(t *testing.T, f fakes) {
		for i := range 5 {
			f.agent(fmt.Sprintf("alive%d", i), "a")
		}
		kill1, kill2 := f.agent("bad", "a"), f.agent("good", "b")
		f.agent("b", "b")
		store := &refusing{Store: f.store, name: "bad"}
		f.seen = store
		s := f.serve("s", lifecycle.DefaultPolicy())
		pass(time.Minute)
		broken := fmt.Errorf("%w: denied by a webhook", controlplane.ErrForbidden)
		store.err.Store(&broken)
		kill1()
		kill2()
		pass(leaseDuration + 4*time.Second)
		f.want("good", stateGone)
		f.want("bad", stateReady)
		pass(5 * time.Minute)
		if err := s.Report().Failing["nodes/bad"]; !errors.Is(err, broken) {
			t.Errorf("Failing = %v, want %v", err, broken)
		}
		if n := s.Report().Writes.Failed; n < 5 || n > 20 {
			t.Errorf("%d failed writes in five minutes, want growing pauses", n)
		}
		store.err.Store(nil)
		pass(2 * time.Minute)
		f.want("bad", stateGone)
	})
}

func TestANodeWhoseZoneChangesHasTheRateOfTheNewZone(t *testing.T) {
	inBubble(t, true, func(t *testing.T, f fakes) {
		f.agent("alive1", "b")
		f.agent("alive2", "b")
		for _, name := range []string{"h1", "h2", "h3"} {
			f.agent(name, "a")()
		}
		policy := lifecycle.DefaultPolicy()
		policy.DeadZone = lifecycle.DeadZonePause
		f.serve("s", policy)
		pass(10 * time.Minute)
		const paused = "Unknown unreachable:NoSchedule" // all of zone a
		f.want("h1", paused)
		node := f.node("h1")
		node.Labels[corev1.LabelTopologyZone] = "b"
		f.store.Put(store.Nodes, node)
		pass(2 * time.Second)
		f.want("h1", stateGone)
		f.want("h2", paused)
		// In a zone without a ready host, it keeps its taints.
		node = f.node("h1")
		node.Labels[corev1.LabelTopologyZone] = "a"
		f.store.Put(store.Nodes, node)
		pass(10 * time.Minute)
		f.want("h1", stateGone)
		f.want("h3", paused)
	})
}

func TestObjectsThatCannotBeReadAreNamedAndSkipped(t *testing.T) {
	inBubble(t, true, func(t *testing.T, f fakes) {
		f.agent("alive", "a")
		kill := f.agent("h", "a")
		f.store.PutRaw(store.Nodes, "broken", []byte(`{"kind":`))
		f.store.PutRaw(store.Nodes, "liar", []byte(`{"metadata":{"name":"alive"}}`))
		f.store.PutRaw(store.Leases, "broken", []byte(`[]`))
		s := f.serve("s", lifecycle.DefaultPolicy())
		pass(time.Minute)
		kill()
		pass(leaseDuration + 4*time.Second)
		f.want("h", stateGone)
		var names []string
		for name := range s.Report().Unreadable {
			names = append(names, name)
		}
		slices.Sort(names)
		if want := []string{"leases/broken", "nodes/broken", "nodes/liar"}; !slices.Equal(names, want) {
			t.Errorf("Unreadable = %v, want %v", names, want)
		}
		f.report("broken", "a")
		pass(time.Second)
		if _, still := s.Report().Unreadable["nodes/broken"]; still {
			t.Error("nodes/broken is still reported, though it was fixed")
		}
	})
}

func TestHundredsOfDeathsAreMarkedAtOnceAndTaintedAtTheRate(t *testing.T) {
	inBubble(t, true, func(t *testing.T, f fakes) {
		const n = 400
		var kills []func()
		for i := range n {
			f.agent(fmt.Sprintf("alive%d", i), "a")
			if i%2 == 0 {
				kills = append(kills, f.agent(fmt.Sprintf("h%d", i), "a"))
			}
		}
		f.serve("s", lifecycle.DefaultPolicy())
		pass(time.Minute)
		for _, kill := range kills {
			kill()
		}
		pass(leaseDuration + time.Second)
		unknown, evicted := 0, 0
		count := func() {
			unknown, evicted = 0, 0
			for i := 0; i < n; i += 2 {
				state := f.state(fmt.Sprintf("h%d", i))
				if strings.HasPrefix(state, "Unknown") {
					unknown++
				}
				if strings.Contains(state, "NoExecute") {
					evicted++
				}
			}
		}
		count()
		if unknown != n/2 {
			t.Errorf("%d hosts are Unknown, want %d", unknown, n/2)
		}
		pass(9*time.Minute + 30*time.Second)
		if count(); evicted < 55 || evicted > 62 {
			t.Errorf("%d Nodes have a NoExecute taint after nine and a half minutes, want about 60", evicted)
		}
	})
}

func TestAfterAllZonesWereDownEveryHostHasItsGracePeriod(t *testing.T) {
	inBubble(t, true, func(t *testing.T, f fakes) {
		names := []string{"h0", "h1", "h2", "h3"}
		var kills []func()
		for _, name := range names {
			kills = append(kills, f.agent(name, "a"))
		}
		s := f.serve("s", lifecycle.DefaultPolicy())
		pass(time.Minute)
		for _, kill := range kills {
			kill()
		}
		pass(10 * time.Minute)
		for _, name := range names {
			f.want(name, "Unknown unreachable:NoSchedule")
		}
		if !s.Report().Decision.AllDown {
			t.Error("AllDown = false, want true")
		}
		f.agent("h0", "a")
		pass(35 * time.Second)
		f.want("h0", stateReady)
		f.want("h1", "Unknown unreachable:NoSchedule")
		pass(2 * time.Minute)
		f.want("h0", stateReady)
		for _, name := range names[1:] { // 75 percent of a small fleet: nobody is evicted
			f.want(name, "Unknown unreachable:NoSchedule")
		}
		f.agent("h1", "a")
		f.agent("h2", "a")
		pass(10 * time.Second)
		f.want("h3", stateGone)
	})
}

// TestAHostThatWasCutOffWithAllOthersHasItsGracePeriod has a host in a zone of its own. Its zone does not say that it is
// alive, when another zone is up again.
// It does not matter whether the server starts again meanwhile, or soon afterwards.
func TestAHostThatWasCutOffWithAllOthersHasItsGracePeriod(t *testing.T) {
	for name, starts := range map[string][2]bool{"one server": {}, "another one meanwhile": {true, false}, "another one afterwards": {false, true}} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, true, func(t *testing.T, f fakes) {
				kills := []func(){f.agent("h0", "a"), f.agent("h1", "b")}
				s := f.after(nil, 0, func() {})
				pass(time.Minute)
				for _, kill := range kills {
					kill()
				}
				pass(10 * time.Minute)
				f.want("h1", "Unknown unreachable:NoSchedule")
				back := func() { f.agent("h0", "a") }
				if starts[0] {
					s = f.after(s, time.Second, back)
				} else {
					back()
				}
				pass(5 * time.Second)
				if starts[1] {
					f.after(s, time.Second, func() {})
				}
				pass(leaseDuration - 10*time.Second)
				f.want("h1", "Unknown unreachable:NoSchedule")
				pass(40 * time.Second)
				f.want("h1", stateGone)
			})
		})
	}
}

// TestAHostThatRenewsIsAliveAfterAStart has a host whose Node is Unknown, although it renews its Lease: it has just
// returned, or its status is refused.
func TestAHostThatRenewsIsAliveAfterAStart(t *testing.T) {
	for _, endsLeases := range []bool{true, false} {
		t.Run(fmt.Sprintf("endsLeases=%t", endsLeases), func(t *testing.T) {
			inBubble(t, endsLeases, func(t *testing.T, f fakes) {
				f.agent("other", "a")
				f.agent("h", "a")
				f.report("h", "a", func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown })
				pass(time.Second)
				s := f.after(nil, 0, func() {})
				for range 10 {
					s = f.after(s, time.Second, func() {})
					pass(17 * time.Second)
					f.want("h", "Unknown unreachable:NoSchedule")
				}
			})
		})
	}
}

// TestAnIdleServerDecidesNowAndThen has a fleet in which nothing happens for a minute.
func TestAnIdleServerDecidesNowAndThen(t *testing.T) {
	inBubble(t, true, func(t *testing.T, f fakes) {
		f.agent("h", "a")
		s := f.serve("s", lifecycle.DefaultPolicy())
		pass(time.Minute)
		decisions, marks := map[time.Time]bool{}, map[time.Time]bool{}
		for range 600 {
			pass(100 * time.Millisecond)
			r := s.Report()
			decisions[r.At], marks[r.Marking.At] = true, true
		}
		if n := len(decisions); n < 12 || n > 14 {
			t.Errorf("%d decisions in a minute, want one every five seconds", n)
		}
		if n := len(marks); n < 6 || n > 8 {
			t.Errorf("%d decisions about pods in a minute, want one every ten seconds", n)
		}
	})
}

// TestAHostDelaysNoOther has a host that writes its own Node as often as it likes, to take each turn of its zone. Others
// there die.
func TestAHostDelaysNoOther(t *testing.T) {
	for name, writes := range map[string]func(*corev1.Node){
		"a turn of its own just now": func(n *corev1.Node) {
			n.Annotations = map[string]string{lifecycle.AnnotationTainted: time.Now().UTC().Format(time.RFC3339Nano)}
		},
		"a turn of its own soon": func(n *corev1.Node) {
			n.Annotations = map[string]string{lifecycle.AnnotationTainted: time.Now().Add(59 * time.Second).UTC().Format(time.RFC3339Nano)}
		},
		"not ready for the longest time, and no taint": func(n *corev1.Node) {
			n.Spec.Taints = nil
			n.Status.Conditions[0].Status, n.Status.Conditions[0].LastTransitionTime = corev1.ConditionFalse, metav1.Unix(0, 0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, true, func(t *testing.T, f fakes) {
				for i := range 5 {
					f.agent(fmt.Sprintf("alive%d", i), "a")
				}
				first, second := f.agent("first", "a"), f.agent("second", "a")
				f.agent("hostile", "a")
				f.serve("s", lifecycle.DefaultPolicy())
				pass(time.Minute)
				first()
				second()
				for i := range 2 * time.Minute / time.Second {
					if i%3 == 0 {
						f.store.Remove(store.Nodes, "hostile")
					}
					f.report("hostile", "a", writes)
					pass(time.Second)
				}
				f.want("first", stateGone)
				f.want("second", stateGone)
			})
		})
	}
}

// TestAHostThatChangesItsZoneGetsTaintsAtTheRate has a host that moves to a new zone, and removes its taints, again and
// again.
func TestAHostThatChangesItsZoneGetsTaintsAtTheRate(t *testing.T) {
	inBubble(t, true, func(t *testing.T, f fakes) {
		f.agent("alive", "a")
		var tainted int
		f.serve("s", lifecycle.DefaultPolicy())
		pass(time.Minute)
		for i := range 600 {
			if node, err := f.store.Peek(store.Nodes, "hostile"); err == nil && slices.ContainsFunc(node.(*corev1.Node).Spec.Taints, func(t corev1.Taint) bool { return t.Effect == corev1.TaintEffectNoExecute }) {
				tainted++
			}
			f.report("hostile", "z", func(n *corev1.Node) {
				n.Labels[corev1.LabelTopologyZone], n.Spec.Taints = fmt.Sprint("z", i), nil
				n.Status.Conditions[0].Status = corev1.ConditionFalse
			})
			pass(time.Second)
		}
		if tainted == 0 || tainted > 61 {
			t.Errorf("the host got NoExecute taints %d times in 10 minutes, want once in 10 s at most", tainted)
		}
	})
}

// TestAHostTakesNoSecondTurnAtASlowRate has a rate of one Node in two hours, and a host that removes its taint.
func TestAHostTakesNoSecondTurnAtASlowRate(t *testing.T) {
	inBubble(t, true, func(t *testing.T, f fakes) {
		for i := range 3 {
			f.agent(fmt.Sprintf("alive%d", i), "a")
		}
		f.agent("hostile", "a")
		kill := f.agent("dead", "a")
		policy := lifecycle.DefaultPolicy()
		policy.EvictionRate = 1.0 / 7200
		f.serve("s", policy)
		pass(time.Minute)
		removes := func(n *corev1.Node) {
			n.Spec.Taints = nil
			n.Status.Conditions[0].Status, n.Status.Conditions[0].LastTransitionTime = corev1.ConditionFalse, metav1.Unix(0, 0)
		}
		for i := range 5 * 60 {
			f.report("hostile", "a", removes)
			pass(time.Minute)
			if i == 10 {
				kill()
			}
		}
		f.want("dead", stateGone)
	})
}
