package lifecycle_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controllers/lifecycle"
	"hostler.io/hostler/controlplane/store"
	"hostler.io/hostler/controlplane/store/memory"
)

// broken is a store whose watch of Leases fails in one way, while everything else answers.
type broken struct {
	*memory.Store
	way     atomic.Pointer[string]
	refused atomic.Int32 // number of reads
}

// The ways.
const (
	watchRefused = "the list is refused"
	watchSilent  = "the watch is silent"
	watchLies    = "the watch is silent, and its progress goes on"
	readRefused  = "reads are refused, and the watch goes on"
)

// Get implements store.Store.
func (b *broken) Get(ctx context.Context, kind store.Kind, name string) (store.Object, error) {
	if way := b.way.Load(); way != nil && *way == readRefused && kind.Name == store.Leases.Name {
		b.refused.Add(1)
		return nil, fmt.Errorf("get lease: %w", controlplane.ErrForbidden)
	}
	return b.Store.Get(ctx, kind, name)
}

// Follow implements store.Store.
func (b *broken) Follow(ctx context.Context, kind store.Kind, scope store.Scope, f store.Follower) error {
	if kind.Name != store.Leases.Name {
		return b.Store.Follow(ctx, kind, scope, f)
	}
	if way := b.way.Load(); way != nil && *way == watchRefused {
		return fmt.Errorf("follow leases: %w", controlplane.ErrForbidden)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	return b.Store.Follow(ctx, kind, scope, &faulty{f, b, cancel})
}

// faulty forwards the reports of a watch, if the watch works.
type faulty struct {
	store.Follower
	b   *broken
	end context.CancelCauseFunc
}

func (f *faulty) works() bool {
	way := f.b.way.Load()
	if way != nil && *way == watchRefused {
		f.end(controlplane.ErrForbidden)
	}
	return way == nil || *way == readRefused
}

// Set implements store.Follower.
func (f *faulty) Set(name string, o store.Object) {
	if f.works() {
		f.Follower.Set(name, o)
	}
}

// Delete implements store.Follower.
func (f *faulty) Delete(name string) {
	if f.works() {
		f.Follower.Delete(name)
	}
}

// Confirmed implements store.Confirmer.
func (f *faulty) Confirmed(at time.Time) {
	if way := f.b.way.Load(); way == nil || *way == watchLies || *way == readRefused {
		store.Confirmed(f.Follower, at)
	}
}

// TestASilentWatchOfLeasesKillsNobody has living hosts, whose renewals the server does not see.
func TestASilentWatchOfLeasesKillsNobody(t *testing.T) {
	for _, way := range []string{watchRefused, watchSilent, watchLies} {
		for kind, endsLeases := range map[string]bool{"etcd": true, "Kubernetes": false} {
			t.Run(way+", "+kind, func(t *testing.T) { inBubble(t, endsLeases, func(t *testing.T, f fakes) { silentLeases(t, f, way) }) })
		}
	}
}

func silentLeases(t *testing.T, f fakes, way string) {
	names := []string{"h1", "h2", "h3", "h4", "h5", "h6"}
	for _, name := range names {
		f.agent(name, "a")
	}
	b := &broken{Store: f.store}
	f.seen = b
	s := f.serve("s", lifecycle.DefaultPolicy())
	pass(time.Minute)
	b.way.Store(&way)
	pass(10 * time.Minute)
	for _, name := range names {
		f.want(name, stateReady)
	}
	if paused := s.Report().Paused; way != watchLies && !strings.Contains(paused, "leases") {
		t.Errorf("Paused = %q, want that it names the Leases", paused)
	}
	b.way.Store(nil)
	pass(5 * time.Minute)
	for _, name := range names {
		f.want(name, stateReady)
	}
}

// TestAHostThatDiesWhileItsLeaseCannotBeReadIsUnknownLater checks that the pause ends.
func TestAHostThatDiesWhileItsLeaseCannotBeReadIsUnknownLater(t *testing.T) {
	inBubble(t, false, func(t *testing.T, f fakes) {
		for i := range 4 {
			f.agent(fmt.Sprintf("alive%d", i), "a")
		}
		kill := f.agent("h", "a")
		b, way := &broken{Store: f.store}, readRefused
		f.seen = b
		s := f.serve("s", lifecycle.DefaultPolicy())
		pass(time.Minute)
		b.way.Store(&way)
		kill()
		pass(5 * time.Minute)
		f.want("h", stateReady)
		if got := s.Report(); len(got.Failing) != 1 || !errors.Is(got.Failing["nodes/h"], controlplane.ErrForbidden) || got.Decision.Zones[0].Paused != "" {
			t.Errorf("failing = %v, zones = %+v, want the host whose Lease cannot be read, and that the others are not paused", got.Failing, got.Decision.Zones)
		}
		if reads := b.refused.Load(); reads > 20 {
			t.Errorf("%d reads of the Lease in five minutes, want few", reads)
		}
		b.way.Store(nil)
		pass(90 * time.Second)
		f.want("h", stateGone)
		if got := s.Report().Failing; len(got) > 0 {
			t.Errorf("failing = %v, want none", got)
		}
	})
}

// TestALeaseThatSomeoneDeletesIsNoDeath has the collector or a person delete the Lease of a living host at any
// moment of its interval, with and without a new Node.
func TestALeaseThatSomeoneDeletesIsNoDeath(t *testing.T) {
	for _, again := range []bool{false, true} {
		inBubble(t, true, func(t *testing.T, f fakes) {
			for i := range 3 {
				f.agent(fmt.Sprintf("alive%d", i), "a")
			}
			kill := f.agent("h", "a")
			f.serve("s", lifecycle.DefaultPolicy())
			pass(time.Minute)
			for i := range 16 {
				pass(time.Duration(i) * 700 * time.Millisecond)
				if again { // a person deletes the Node, and the host registers it
					f.store.Remove(store.Nodes, "h")
					pass(100 * time.Millisecond)
					f.report("h", "a")
				}
				f.store.Remove(store.Leases, "h")
				for range 30 {
					pass(time.Second)
					f.want("h", stateReady)
				}
			}
			// The host dies right after that: it is Unknown a duration later, not at once and not never.
			kill()
			f.renew("h")
			f.store.Remove(store.Leases, "h")
			pass(leaseDuration - time.Second)
			f.want("h", stateReady)
			pass(10 * time.Second)
			f.want("h", stateGone)
		})
	}
}

// TestALeaseThatLastsForAgesProvesLittle has a host that dies, and whose Lease the store would keep for 68 years.
func TestALeaseThatLastsForAgesProvesLittle(t *testing.T) {
	for _, endsLeases := range []bool{true, false} {
		inBubble(t, endsLeases, func(t *testing.T, f fakes) {
			for i := range 3 {
				f.agent(fmt.Sprintf("alive%d", i), "a")
			}
			seconds, name := int32(1<<31-1), "h"
			renew := func() {
				now := metav1.NowMicro()
				f.store.Put(store.Leases, &coordinationv1.Lease{
					ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: name},
					Spec:       coordinationv1.LeaseSpec{HolderIdentity: &name, LeaseDurationSeconds: &seconds, RenewTime: &now},
				})
			}
			renew()
			f.report(name, "a")
			f.serve("s", lifecycle.DefaultPolicy())
			for range 4 { // it is alive
				pass(10 * time.Second)
				renew()
				f.want(name, stateReady)
			}
			pass(lifecycle.DefaultPolicy().GracePeriod + 10*time.Second)
			f.want(name, stateGone)
		})
	}
}

// TestAHostThatDiesAfterTheStartOfAServerGetsNoGraceForTheStart has hosts that die right before and after a start.
func TestAHostThatDiesAfterTheStartOfAServerGetsNoGraceForTheStart(t *testing.T) {
	inBubble(t, true, func(t *testing.T, f fakes) {
		for i := range 3 {
			f.agent(fmt.Sprintf("alive%d", i), "a")
		}
		kill := f.agent("before", "a")
		pass(5 * time.Second)
		kill()
		pass(leaseDuration / 2) // its Lease ends before that time has passed again, which proves nothing
		kill = f.agent("after", "a")
		f.serve("s", lifecycle.DefaultPolicy())
		pass(5 * time.Second)
		kill()
		for range int(leaseDuration/time.Second) - 6 {
			pass(time.Second)
			f.want("before", stateReady)
			f.want("after", stateReady)
		}
		pass(6 * time.Second)
		for _, name := range []string{"before", "after"} {
			if state := f.state(name); !strings.HasPrefix(state, "Unknown") {
				t.Errorf("%s is %q, want Unknown", name, state)
			}
		}
	})
}

// TestAHostWhoseLeaseTheStoreEndedTooEarlyIsAlive has a member of etcd that led, was suspended, and continues: it ends
// all Leases that were not renewed until then as far as it knows.
func TestAHostWhoseLeaseTheStoreEndedTooEarlyIsAlive(t *testing.T) {
	inBubble(t, true, func(t *testing.T, f fakes) {
		names := []string{"h1", "h2", "h3", "h4"}
		for _, name := range names {
			f.agent(name, "a")
		}
		f.serve("s", lifecycle.DefaultPolicy())
		pass(time.Minute)
		f.store.EndLeases()
		for range 60 { // each creates its Lease again within a quarter of its duration
			pass(time.Second)
			for _, name := range names {
				f.want(name, stateReady)
			}
		}
	})
}

// TestACauseOfATaintHoldsOnlyWhileItIsKnown checks what evictions for outages require.
func TestACauseOfATaintHoldsOnlyWhileItIsKnown(t *testing.T) {
	inBubble(t, true, func(t *testing.T, f fakes) {
		for i := range 3 {
			f.agent(fmt.Sprintf("alive%d", i), "a")
		}
		kill := f.agent("h", "a")
		s := f.serve("s", lifecycle.DefaultPolicy())
		pass(time.Minute)
		uid := f.node("h").UID
		holds := func(key, want string) []store.Reference {
			t.Helper()
			refs, err := s.Holds("h", uid, key)
			if err == nil && want != "" || err != nil && (want == "" || !strings.Contains(err.Error(), want)) {
				t.Errorf("Holds(%s) = %v, want %q", key, err, want)
			}
			return refs
		}
		holds(corev1.TaintNodeUnreachable, "may be alive")
		alive := f.node("alive0").UID
		lives := func(uid types.UID) bool {
			sign := s.Alive("alive0", uid, time.Time{}, time.Now())
			return sign.Alive && !sign.Known.IsZero()
		}
		if !lives(alive) || lives("another") {
			t.Error("Alive() is not true of the Node alone whose host renews its Lease")
		}
		kill()
		pass(leaseDuration + 5*time.Second)
		f.want("h", stateGone)
		if s.Alive("h", uid, time.Time{}, time.Now()).Alive {
			t.Error("Alive() of a host that is dead = true")
		}
		if refs := holds(corev1.TaintNodeUnreachable, ""); len(refs) != 1 || refs[0].Name != "h" || refs[0].Version != "" {
			t.Errorf("Holds() = %+v, want that there is no Lease", refs)
		}
		if _, err := s.Holds("h", "another", corev1.TaintNodeUnreachable); err == nil {
			t.Error("Holds() of another Node of that name = nil, want an error")
		}
		f.store.Inject(memory.Any, memory.Fault{Err: errors.New("away")})
		pass(20 * time.Second)
		holds(corev1.TaintNodeUnreachable, "does not know")
		holds(corev1.TaintNodeNotReady, "does not know")
		if lives(alive) {
			t.Error("Alive() while the store is away = true, want false")
		}
	})
}

// TestAnUnreadableLeaseStopsNoOther has a host that is Unknown, and whose Lease nobody can read.
func TestAnUnreadableLeaseStopsNoOther(t *testing.T) {
	for _, endsLeases := range []bool{true, false} {
		inBubble(t, endsLeases, func(t *testing.T, f fakes) {
			for i := range 5 {
				f.agent(fmt.Sprintf("alive%d", i), "a")
			}
			f.report("bad", "a", func(n *corev1.Node) {
				for i := range n.Status.Conditions {
					n.Status.Conditions[i].Status = corev1.ConditionUnknown
				}
			})
			f.store.PutRaw(store.Leases, "bad", []byte("{"))
			kill := f.agent("h", "a")
			f.serve("s", lifecycle.DefaultPolicy())
			pass(time.Minute)
			kill()
			before := f.store.Calls(memory.Get)
			pass(10 * time.Minute)
			f.want("h", stateGone)
			if reads := f.store.Calls(memory.Get) - before; reads > 200 {
				t.Errorf("reads in ten minutes = %d, want no loop", reads)
			}
		})
	}
}

// TestALeaseThatNobodyCanReadKeepsNoHostAlive has a host that has written something else over its Lease, and then died, and
// one that writes it at each renewal.
func TestALeaseThatNobodyCanReadKeepsNoHostAlive(t *testing.T) {
	for _, endsLeases := range []bool{true, false} {
		inBubble(t, endsLeases, func(t *testing.T, f fakes) {
			for i := range 3 {
				f.agent(fmt.Sprintf("alive%d", i), "a")
			}
			kill := f.agent("h", "a")
			f.report("writes", "a")
			f.store.PutRaw(store.Leases, "writes", []byte("{"))
			f.serve("s", lifecycle.DefaultPolicy())
			pass(30 * time.Second)
			kill()
			f.store.PutRaw(store.Leases, "h", []byte("{"))
			for range 7 {
				f.want("h", stateReady)
				f.want("writes", stateReady)
				pass(5 * time.Second)
				f.store.PutRaw(store.Leases, "writes", []byte("{"))
			}
			pass(30 * time.Second)
			f.want("h", stateGone)
			f.want("writes", stateReady)
		})
	}
}

// TestALeaseThatIsDeletedBetweenTwoNodesIsNoDeath has the collector delete the Lease after its Node, and before the
// host registers another one and renews.
func TestALeaseThatIsDeletedBetweenTwoNodesIsNoDeath(t *testing.T) {
	inBubble(t, true, func(t *testing.T, f fakes) {
		for i := range 3 {
			f.agent(fmt.Sprintf("alive%d", i), "a")
		}
		f.renew("h")
		f.report("h", "a")
		f.serve("s", lifecycle.DefaultPolicy())
		pass(20 * time.Second)
		f.store.Remove(store.Nodes, "h")
		pass(time.Second)
		f.store.Remove(store.Leases, "h")
		pass(time.Second)
		f.report("h", "a") // it renews every 30 s
		for range 28 {
			pass(time.Second)
			f.want("h", stateReady)
		}
		f.renew("h")
		for range 30 {
			pass(time.Second)
			f.want("h", stateReady)
		}
	})
}

// TestAHostIsDeadAlsoIfThatCannotBeStored has a store whose database is full: it answers, but stores nothing.
func TestAHostIsDeadAlsoIfThatCannotBeStored(t *testing.T) {
	inBubble(t, true, func(t *testing.T, f fakes) {
		f.agent("alive", "a")
		kill := f.agent("h", "a")
		s := f.serve("s", lifecycle.DefaultPolicy())
		pass(time.Minute)
		uid := f.node("h").UID
		f.store.Inject(memory.Update, memory.Fault{Err: errors.New("database space exceeded")})
		kill()
		pass(leaseDuration + 10*time.Second)
		f.want("h", stateReady)
		if sign := s.Alive("h", uid, time.Time{}, time.Now()); sign.Alive || sign.Known.IsZero() {
			t.Errorf("Alive() = %+v, want that the host is known to be dead", sign)
		}
	})
}

// TestAHostHasToBeSeenAfterAllZonesWereDown has hosts that could not renew their Leases, of which one does not return.
func TestAHostHasToBeSeenAfterAllZonesWereDown(t *testing.T) {
	inBubble(t, true, func(t *testing.T, f fakes) {
		var kills []func()
		for _, name := range []string{"a", "b", "h"} {
			kills = append(kills, f.agent(name, "z"))
		}
		s := f.serve("s", lifecycle.DefaultPolicy())
		pass(time.Minute)
		f.store.Inject(memory.Update, memory.Fault{Err: errors.New("database space exceeded")})
		for _, kill := range kills {
			kill()
		}
		pass(leaseDuration + 10*time.Second)
		f.store.Heal()
		f.agent("a", "z")
		f.agent("b", "z")
		for range 10 {
			pass(3 * time.Second)
			if s.Alive("h", f.node("h").UID, time.Time{}, time.Now()).Alive {
				t.Fatal("Alive() of the host that has not returned = true")
			}
		}
		if !s.Alive("a", f.node("a").UID, time.Time{}, time.Now()).Alive {
			t.Error("Alive() of a host that has returned = false")
		}
	})
}
