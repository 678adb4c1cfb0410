package eviction_test

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

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controllers/controllertest"
	"hostler.io/hostler/controlplane/controllers/eviction"
	"hostler.io/hostler/controlplane/controllers/podcache"
	"hostler.io/hostler/controlplane/election"
	"hostler.io/hostler/controlplane/store"
	"hostler.io/hostler/controlplane/store/memory"
	"hostler.io/hostler/internal/loop"
)

// rig is a fleet in a store, in a bubble of synctest.
type rig struct {
	*testing.T
	store *memory.Store
	kind  store.Kind
}

// inBubble runs a test on a store in which hosts report their pods, like etcd, and on one like
// Kubernetes.
func inBubble(t *testing.T, test func(rig)) {
	for _, byHosts := range []bool{true, false} {
		t.Run(fmt.Sprintf("pods by hosts %v", byHosts), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				test(rig{t, memory.New(memory.Options{EndsLeases: byHosts}), store.Pods(byHosts)})
			})
		})
	}
}

// taint returns a NoExecute taint that was added at that time; without a time if that is zero.
func taint(key string, added time.Time) corev1.Taint {
	t := corev1.Taint{Key: key, Effect: corev1.TaintEffectNoExecute}
	if !added.IsZero() {
		at := metav1.NewTime(added)
		t.TimeAdded = &at
	}
	return t
}

// node stores a Node with those taints.
func (r rig) node(name string, taints ...corev1.Taint) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	node.Spec.Taints = taints
	r.store.Put(store.Nodes, node)
}

// pod stores a pod on a Node, and returns its name in the store.
func (r rig) pod(node, name string, tolerations ...corev1.Toleration) string {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
	pod.Spec.NodeName, pod.Spec.Tolerations = node, tolerations
	return r.kind.StoredName(r.store.Put(r.kind, pod))
}

// evicted returns when the deletion of a pod was requested; false if it was not. If hosts do not
// report their pods, the pod is deleted, and the time is zero.
func (r rig) evicted(pod string) (time.Time, bool) {
	r.Helper()
	stored, err := r.store.Get(context.Background(), r.kind, pod)
	if errors.Is(err, controlplane.ErrNotFound) {
		return time.Time{}, true
	}
	if err != nil {
		r.Fatal(err)
	}
	p := stored.(*corev1.Pod)
	targeted := slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue && c.Reason == "DeletionByTaintManager"
	})
	if p.DeletionTimestamp == nil {
		return time.Time{}, false
	}
	if !targeted {
		r.Errorf("pod %s is deleted without the condition DisruptionTarget", pod)
	}
	return p.DeletionTimestamp.Time, true
}

// want checks whether these pods are evicted.
func (r rig) want(evicted bool, pods ...string) {
	r.Helper()
	synctest.Wait()
	for _, pod := range pods {
		if _, got := r.evicted(pod); got != evicted {
			r.Errorf("pod %s evicted = %v, want %v", pod, got, evicted)
		}
	}
}

// replica is one server.
type replica struct {
	*eviction.Controller
	election *election.Election
	stop     func()
}

// serve starts a server on a store. The end of the test stops it.
func (r rig) serve(name string, s store.Store) *replica { return r.replica(name, s, nil) }

// replica starts a server that knows the causes of taints, or does not if o is nil.
func (r rig) replica(name string, s store.Store, o eviction.Outages) *replica {
	log := slog.New(slog.DiscardHandler)
	changed, contact := loop.NewSignal(), &store.Contact{}
	pods := podcache.New(changed)
	c := &replica{Controller: eviction.New(s, contact, pods, changed, log), election: election.New(s, eviction.Name, name, log)}
	c.Outages = o
	ignore := func(error) {}
	c.stop = controllertest.Run(r,
		func(ctx context.Context) error { return contact.Run(ctx, s.Ping, ignore) },
		func(ctx context.Context) error { return s.Follow(ctx, store.Nodes, store.AllChanges, c.Nodes()) },
		func(ctx context.Context) error { return s.Follow(ctx, r.kind, store.AllChanges, pods.Follower()) },
		func(ctx context.Context) error { return c.Run(ctx, ignore) },
		func(ctx context.Context) error { return c.election.Run(ctx, c.Lead, ignore) },
	)
	return c
}

// slack is how late an eviction may be, because there is a pause between decisions.
const slack = 200 * time.Millisecond

func TestPodsGoWhenTheirTolerationIsOver(t *testing.T) {
	inBubble(t, func(r rig) {
		r.node("n")
		atOnce, later, stays := r.pod("n", "at-once"), r.pod("n", "later", tolerates("a", 300)), r.pod("n", "stays", tolerates("a", -1))
		r.node("other")
		elsewhere := r.pod("other", "elsewhere")
		s := r.serve("s", r.store)
		time.Sleep(10 * time.Second)
		r.want(false, atOnce, later, stays, elsewhere)
		r.node("n", taint("a", time.Now()))
		time.Sleep(slack)
		r.want(true, atOnce)
		r.want(false, later, stays, elsewhere)
		if p := s.Report().Decision.Pending; len(p) != 1 || p[0].Pod != later || time.Until(p[0].Due) > 300*time.Second || time.Until(p[0].Due) < 299*time.Second {
			t.Errorf("pending = %+v, want the other pod in 5 minutes", p)
		}
		time.Sleep(299 * time.Second)
		r.want(false, later)
		time.Sleep(time.Second + slack)
		r.want(true, later)
		time.Sleep(time.Hour)
		r.want(false, stays, elsewhere)
		if w := s.Report().Writes; w.Stored != 2 || w.Failed != 0 {
			t.Errorf("writes = %+v, want two that were stored", w)
		}
	})
}

func TestATaintThatIsRemovedInTimeEvictsNothing(t *testing.T) {
	inBubble(t, func(r rig) {
		r.node("n")
		pod := r.pod("n", "p", tolerates("a", 300))
		r.serve("s", r.store)
		time.Sleep(10 * time.Second)
		r.node("n", taint("a", time.Now()))
		time.Sleep(299 * time.Second)
		r.node("n")
		time.Sleep(10 * time.Second)
		r.want(false, pod)
		// A taint that is set again counts from then, even within the same minute.
		r.node("n", taint("a", time.Now()))
		time.Sleep(299 * time.Second)
		r.want(false, pod)
		time.Sleep(time.Second + slack)
		r.want(true, pod)
	})
}

func TestARestartChangesNoDueTime(t *testing.T) {
	inBubble(t, func(r rig) {
		r.node("n")
		pod, overdue := r.pod("n", "p", tolerates("a", 300)), r.pod("n", "overdue", tolerates("a", 100))
		r.node("n", taint("a", time.Now()))
		time.Sleep(200 * time.Second)
		first := r.serve("first", r.store)
		time.Sleep(time.Second + slack) // a decision before the first answer of the store is made again after a second
		r.want(true, overdue)
		time.Sleep(49 * time.Second)
		first.stop()
		time.Sleep(10 * time.Second)
		r.serve("second", r.store)
		time.Sleep(39 * time.Second)
		r.want(false, pod)
		time.Sleep(time.Second + slack)
		r.want(true, pod)
	})
}

func TestATaintThatReplacesAnotherCountsFromItsTime(t *testing.T) {
	inBubble(t, func(r rig) {
		r.node("n")
		pod := r.pod("n", "p", tolerates("a", 300), tolerates("b", 300))
		r.serve("s", r.store)
		time.Sleep(time.Second)
		added := time.Now()
		r.node("n", taint("a", added))
		time.Sleep(200 * time.Second)
		r.node("n", taint("b", added))
		time.Sleep(99 * time.Second)
		r.want(false, pod)
		time.Sleep(time.Second + slack)
		r.want(true, pod)
	})
}

func TestClocksThatAreWrongNeitherHastenNorDelay(t *testing.T) {
	for name, off := range map[string]time.Duration{"an hour behind": -time.Hour, "an hour ahead": time.Hour, "no time": 0} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r rig) {
				r.node("n")
				pod := r.pod("n", "p", tolerates("a", 300))
				r.serve("s", r.store)
				time.Sleep(time.Second)
				added := time.Time{}
				if off != 0 {
					added = time.Now().Add(off)
				}
				r.node("n", taint("a", added))
				time.Sleep(150 * time.Second)
				r.node("n", taint("a", added)) // another change of the Node
				r.store.Relist()
				time.Sleep(149 * time.Second)
				r.want(false, pod)
				time.Sleep(time.Second + slack)
				r.want(true, pod)
			})
		})
	}
}

func TestAnEvictionThatIsRefusedIsTriedUntilItIsDone(t *testing.T) {
	inBubble(t, func(r rig) {
		r.node("n", taint("a", time.Now()))
		pod := r.pod("n", "p")
		err := fmt.Errorf("%w: a webhook refuses it", controlplane.ErrForbidden)
		r.store.Inject(memory.Update, memory.Fault{Err: err})
		server := r.serve("s", r.store)
		time.Sleep(20 * time.Minute)
		r.want(false, pod)
		if failing := server.Report().Failing["pods/"+pod]; !errors.Is(failing, err) {
			t.Errorf("failing = %v, want %v", failing, err)
		}
		if n := r.store.Calls(memory.Update); n < 20 || n > 40 {
			t.Errorf("tries in 20 minutes = %d, want about one a minute", n)
		}
		r.store.Heal()
		time.Sleep(time.Minute + slack)
		r.want(true, pod)
		if failing := server.Report().Failing; len(failing) > 0 {
			t.Errorf("failing = %v, want nothing any more", failing)
		}
	})
}

// stale is a store whose Follow of Nodes reports nothing new while it is frozen.
type stale struct {
	*memory.Store
	frozen atomic.Bool
}

// Follow implements store.Store.
func (s *stale) Follow(ctx context.Context, kind store.Kind, scope store.Scope, f store.Follower) error {
	if kind.Name == store.Nodes.Name {
		f = freezer{f, s}
	}
	return s.Store.Follow(ctx, kind, scope, f)
}

type freezer struct {
	store.Follower
	s *stale
}

// Confirmed implements store.Confirmer: this store confirms changes that it did not report.
func (f freezer) Confirmed(at time.Time) { store.Confirmed(f.Follower, at) }

// Set implements store.Follower.
func (f freezer) Set(name string, o store.Object) {
	if !f.s.frozen.Load() {
		f.Follower.Set(name, o)
	}
}

// Delete implements store.Follower.
func (f freezer) Delete(name string) {
	if !f.s.frozen.Load() {
		f.Follower.Delete(name)
	}
}

func TestNothingIsEvictedOnACacheAlone(t *testing.T) {
	inBubble(t, func(r rig) {
		r.node("n", taint("a", time.Now()))
		r.node("replaced", taint("a", time.Now()))
		untainted, replaced := r.pod("n", "p", tolerates("a", 60)), r.pod("replaced", "q", tolerates("a", 60))
		s := &stale{Store: r.store}
		r.serve("s", s)
		time.Sleep(30 * time.Second)
		s.frozen.Store(true)
		r.node("n")
		r.store.Remove(store.Nodes, "replaced")
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "replaced", UID: types.UID("another")}}
		r.store.Put(store.Nodes, node)
		time.Sleep(10 * time.Minute)
		r.want(false, untainted, replaced)
	})
}

func TestAPodWhoseNodeIsGoneIsRemovedWhereHostsReportPods(t *testing.T) {
	inBubble(t, func(r rig) {
		r.node("n")
		pod := r.pod("n", "p")
		s := &stale{Store: r.store}
		r.serve("s", s)
		time.Sleep(time.Second)
		r.store.Remove(store.Nodes, "n")
		time.Sleep(slack)
		r.want(r.kind.StoredName(&corev1.Pod{}) == "//", pod) // NODE/NAMESPACE/NAME

		// A Node exists although the cache has not seen it yet.
		s.frozen.Store(true)
		r.node("new")
		kept := r.pod("new", "kept")
		time.Sleep(time.Minute)
		r.want(false, kept)
	})
}

func TestWhileTheStoreIsSilentNothingIsEvicted(t *testing.T) {
	inBubble(t, func(r rig) {
		r.node("n")
		pod := r.pod("n", "p", tolerates("a", 60))
		s := r.serve("s", r.store)
		time.Sleep(time.Second)
		r.node("n", taint("a", time.Now()))
		time.Sleep(30 * time.Second)
		r.store.Inject(memory.Ping, memory.Fault{Err: controlplane.ErrUnavailable})
		time.Sleep(time.Minute)
		r.want(false, pod)
		if s.Report().Paused == "" {
			t.Error("report does not say that nothing is decided")
		}
		r.store.Heal()
		time.Sleep(5 * time.Second)
		r.want(true, pod)
	})
}

// outages knows whether the causes of not-ready and unreachable taints hold.
type outages struct{ err atomic.Pointer[error] }

// Holds implements eviction.Outages.
func (o *outages) Holds(string, types.UID, string) ([]store.Reference, error) {
	if err := o.err.Load(); err != nil {
		return nil, *err
	}
	return nil, nil
}

// TestATaintWhoseCauseMayHaveEndedEvictsNobody has a Node with a taint of controller node-lifecycle, and one with another
// taint. Only the first one needs a cause that holds.
func TestATaintWhoseCauseMayHaveEndedEvictsNobody(t *testing.T) {
	inBubble(t, func(r rig) {
		r.node("silent", taint(corev1.TaintNodeUnreachable, time.Now()))
		r.node("tainted", taint("a", time.Now()))
		silent, tainted := r.pod("silent", "p"), r.pod("tainted", "q")
		o, alive := &outages{}, errors.New("the host may be alive")
		o.err.Store(&alive)
		s := r.replica("s", r.store, o)
		time.Sleep(time.Minute)
		r.want(true, tainted)
		r.want(false, silent)
		if p := s.Report().Decision.Pending; len(p) != 1 || p[0].Pod != silent || !strings.HasSuffix(p[0].Reason, "; paused: the host may be alive") {
			t.Errorf("pending = %+v, want the pod, and why it is not evicted", p)
		}
		o.err.Store(nil)
		time.Sleep(time.Minute)
		r.want(true, silent)
	})
}

// TestACauseThatEndsBeforeTheWriteEvictsNobody has a cause that holds only when the controller decides.
func TestACauseThatEndsBeforeTheWriteEvictsNobody(t *testing.T) {
	inBubble(t, func(r rig) {
		r.node("n", taint(corev1.TaintNodeUnreachable, time.Now()))
		pod := r.pod("n", "p")
		o := &outages{}
		s := &reader{Store: r.store, before: func() { err := errors.New("the host may be alive"); o.err.Store(&err) }}
		r.replica("s", s, o)
		time.Sleep(time.Minute)
		r.want(false, pod)
	})
}

// reader is a store that calls before ahead of each read of a Node.
type reader struct {
	store.Store
	before func()
}

// Get implements store.Store.
func (s *reader) Get(ctx context.Context, kind store.Kind, name string) (store.Object, error) {
	if kind.Name == store.Nodes.Name {
		s.before()
	}
	return s.Store.Get(ctx, kind, name)
}

// TestAnIdleServerDecidesNowAndThen has a fleet in which nothing happens for a minute.
func TestAnIdleServerDecidesNowAndThen(t *testing.T) {
	inBubble(t, func(r rig) {
		r.node("n")
		s := r.serve("s", r.store)
		time.Sleep(time.Minute)
		decisions := map[time.Time]bool{}
		for range 600 {
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
			decisions[s.Report().At] = true
		}
		if n := len(decisions); n < 6 || n > 8 {
			t.Errorf("%d decisions in a minute, want one every ten seconds", n)
		}
	})
}

// TestPodsOfANodeThatCannotBeReadStay has a host that makes its Node unreadable after it got a taint: no eviction is
// tried, which would fail for ever, and none is an orphan's.
func TestPodsOfANodeThatCannotBeReadStay(t *testing.T) {
	inBubble(t, func(r rig) {
		r.node("n", taint("a", time.Now()))
		pod := r.pod("n", "p", tolerates("a", 30))
		s := r.serve("s", r.store)
		time.Sleep(10 * time.Second)
		r.store.PutRaw(store.Nodes, "n", []byte("{"))
		time.Sleep(10 * time.Minute)
		r.want(false, pod)
		if report := s.Report(); report.Writes.Failed > 0 || len(report.Failing) > 0 {
			r.Errorf("writes = %+v, failing = %v, want none", report.Writes, report.Failing)
		}
	})
}
