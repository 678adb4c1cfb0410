package memory_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/store"
	"hostler.io/hostler/controlplane/store/memory"
	"hostler.io/hostler/controlplane/store/storetest"
)

// direct is a Network without faults.
type direct struct{}

func (direct) Do(ctx context.Context, _ memory.Request, serve func() error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return serve()
}

// backend is a fleet in memory for the suite. network may be nil.
func backend(o memory.Options, network memory.Network) storetest.Backend {
	s := memory.New(o)
	process := func() store.Store {
		if network == nil {
			return s
		}
		return s.Over(network)
	}
	return storetest.Backend{
		Store:   process(),
		Another: func(*testing.T) store.Store { return process() },
		Put: func(_ context.Context, kind store.Kind, o store.Object) error {
			s.Put(kind, o)
			return nil
		},
		PutUnreadable: func(_ context.Context, kind store.Kind, name string) error {
			s.PutRaw(kind, name, []byte("{"))
			return nil
		},
		PutSetting: func(_ context.Context, name, value string) error {
			s.PutSetting(name, value)
			return nil
		},
	}
}

func TestTheStoreKeepsItsPromises(t *testing.T) {
	for name, c := range map[string]struct {
		memory.Options
		network memory.Network
	}{
		"as etcd": {memory.Options{EndsLeases: true}, nil}, "as Kubernetes": {},
		"as etcd, over a network":                            {memory.Options{EndsLeases: true}, direct{}},
		"as Kubernetes, over a network and with local terms": {memory.Options{LocalTerms: true}, direct{}},
	} {
		t.Run(name, func(t *testing.T) {
			storetest.RunIn(t, synctest.Test, func(*testing.T) storetest.Backend { return backend(c.Options, c.network) })
		})
	}
}

// TestNoPromiseDependsOnTheSpeedOfTheMachine runs the suite on a store whose calls take longer than
// the terms that checks wait to end, as on a machine that is busy with something else.
func TestNoPromiseDependsOnTheSpeedOfTheMachine(t *testing.T) {
	for name, o := range map[string]memory.Options{"as etcd": {EndsLeases: true}, "as Kubernetes": {}} {
		t.Run(name, func(t *testing.T) {
			storetest.RunIn(t, synctest.Test, func(*testing.T) storetest.Backend {
				b := backend(o, nil)
				b.Store.(*memory.Store).Inject(memory.Any, memory.Fault{Delay: 3 * time.Second})
				return b
			})
		})
	}
}

func node(name string) *corev1.Node { return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}} }

func cordon(o store.Object) error {
	o.(*corev1.Node).Spec.Unschedulable = true
	return nil
}

// follower counts its calls.
type follower struct {
	mu sync.Mutex // guards the fields below
	calls
}

// calls counts the calls of a Follower.
type calls struct{ lists, sets, deletions int }

func (f *follower) count(what *int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	*what++
}

func (f *follower) Begin()                   { f.count(&f.lists) }
func (f *follower) Set(string, store.Object) { f.count(&f.sets) }
func (f *follower) Unreadable(string, error) {}
func (f *follower) Synced()                  {}
func (f *follower) Delete(string)            { f.count(&f.deletions) }

// seen waits until all goroutines of the bubble are blocked.
func (f *follower) seen() calls {
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls
}

func TestALeaseEndsWhenItsDurationIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New(memory.Options{EndsLeases: true})
		seconds := int32(40)
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Spec: coordinationv1.LeaseSpec{LeaseDurationSeconds: &seconds}}
		s.Put(store.Leases, lease)
		ctx, cancel := context.WithCancel(t.Context())
		f, ended := &follower{}, make(chan error)
		go func() { ended <- s.Follow(ctx, store.Leases, store.Deletions, f) }()
		time.Sleep(30 * time.Second)
		s.Put(store.Leases, lease)
		time.Sleep(40*time.Second - time.Nanosecond)
		if got, want := f.seen(), (calls{lists: 1, sets: 1}); got != want {
			t.Errorf("calls before the end = %+v, want %+v", got, want)
		}
		time.Sleep(time.Nanosecond)
		if got, want := f.seen(), (calls{lists: 1, sets: 1, deletions: 1}); got != want {
			t.Errorf("calls at the end = %+v, want %+v", got, want)
		}
		s.Put(store.Leases, lease) // its timer outlives the test
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Follow() = %v, want that its context has ended", err)
		}
	})
}

func TestFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New(memory.Options{})
		s.Put(store.Nodes, node("n"))
		update := func(term store.Term) error {
			_, err := s.Update(t.Context(), store.Nodes, "n", store.Preconditions{Term: term}, cordon)
			return err
		}
		s.Inject(memory.Any, memory.Fault{Err: controlplane.ErrUnavailable})
		if err := s.Ping(t.Context()); !errors.Is(err, controlplane.ErrUnavailable) {
			t.Errorf("Ping() that is refused = %v, want %v", err, controlplane.ErrUnavailable)
		}
		s.Heal()
		s.Inject(memory.Update, memory.Fault{Conflict: true, Times: 1})
		if err := update(store.Term{}); !errors.Is(err, controlplane.ErrConflict) {
			t.Errorf("Update() beside another client's = %v, want %v", err, controlplane.ErrConflict)
		}

		const ttl = 5 * time.Second
		term, _, err := s.Elect(t.Context(), "c", "a", ttl)
		if err != nil {
			t.Fatal(err)
		}
		release, stalled := make(chan struct{}), make(chan error)
		s.Inject(memory.Update, memory.Fault{Until: release, Times: 1})
		go func() { stalled <- update(term) }()
		for _, wins := range []bool{false, true} { // the other candidate sees the term, and that it is not extended
			if next, _, err := s.Elect(t.Context(), "c", "b", ttl); err != nil || (next != store.Term{}) != wins {
				t.Errorf("Elect() = %v, %v, want a term: %t", next, err, wins)
			}
			time.Sleep(ttl)
		}
		close(release)
		if err := <-stalled; !errors.Is(err, store.ErrDeposed) {
			t.Errorf("Update() that stalled until another leads = %v, want %v", err, store.ErrDeposed)
		}

		s.Inject(memory.Update, memory.Fault{LoseAnswer: true, Times: 1})
		if err := update(store.Term{}); !errors.Is(err, controlplane.ErrUnavailable) {
			t.Errorf("Update() whose answer is lost = %v, want %v", err, controlplane.ErrUnavailable)
		}
		if o, err := s.Get(t.Context(), store.Nodes, "n"); err != nil || !o.(*corev1.Node).Spec.Unschedulable {
			t.Errorf("Get() after an answer was lost = %v, %v, want what was stored", o, err)
		}
		if got := s.Calls(memory.Update); got != 3 {
			t.Errorf("Calls(Update) = %d, want 3", got)
		}
	})
}

func TestAFollowListsAgainOnDemand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New(memory.Options{})
		s.Put(store.Nodes, node("n"))
		f, ended := &follower{}, make(chan error)
		go func() { ended <- s.Follow(t.Context(), store.Nodes, store.AllChanges, f) }()
		f.seen()
		s.Relist()
		if got, want := f.seen(), (calls{lists: 2, sets: 2}); got != want {
			t.Errorf("calls after Relist() = %+v, want %+v", got, want)
		}
		s.Inject(memory.Follow, memory.Fault{Err: controlplane.ErrUnavailable})
		if err := <-ended; !errors.Is(err, controlplane.ErrUnavailable) {
			t.Errorf("Follow() of a store that is lost = %v, want %v", err, controlplane.ErrUnavailable)
		}
	})
}
