package objects_test

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/objects"
	"hostler.io/hostler/controlplane/objects/objectstest"
)

// unreadable replaces the stored object of the Node n by a value that nobody can read.
func unreadable(t *testing.T, store *objectstest.Store, kind objects.Kind) {
	t.Helper()
	key := objects.Key{Kind: kind, Node: "n"}
	if err := store.Delete(t.Context(), key, objects.None); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Put(t.Context(), key, objects.Put{Value: []byte("{")}); err != nil {
		t.Fatal(err)
	}
}

// keeping is an agent that keeps its Lease.
type keeping struct {
	*agent
	nodeFails atomic.Bool // whether reads of the Node fail
}

func (a *keeping) Node(ctx context.Context, name string) (*corev1.Node, error) {
	if a.nodeFails.Load() {
		return nil, controlplane.ErrUnavailable
	}
	return a.agent.Node(ctx, name)
}

// keeps runs a LeaseKeeper of the agent's machine until the test ends.
func (a *keeping) keeps() *controlplane.LeaseKeeper {
	a.t.Helper()
	node := a.registered()
	keeper, err := controlplane.NewLeaseKeeper(a, controlplane.LeasePolicy{
		Node: "n", Holder: a.id, Duration: 40 * time.Second, Interval: 10 * time.Second, Watch: a.watch,
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		a.t.Fatal(err)
	}
	keeper.SetOwner(node.UID)
	ctx, stop := context.WithCancel(a.t.Context())
	done := make(chan struct{})
	go func() { _ = keeper.Run(ctx); close(done) }()
	a.t.Cleanup(func() { stop(); <-done })
	return keeper
}

// A keeper whose stored Lease cannot be read replaces it, whether it runs already or starts then.
func TestAnUnreadableLeaseIsReplaced(t *testing.T) {
	for name, run := range map[string]func(t *testing.T, a *keeping, store *objectstest.Store) *controlplane.LeaseKeeper{
		"before the keeper starts": func(t *testing.T, a *keeping, store *objectstest.Store) *controlplane.LeaseKeeper {
			a.renewed()
			unreadable(t, store, objects.Lease)
			return a.keeps()
		},
		"while it runs": func(t *testing.T, a *keeping, store *objectstest.Store) *controlplane.LeaseKeeper {
			keeper := a.keeps()
			time.Sleep(time.Minute)
			unreadable(t, store, objects.Lease)
			return keeper
		},
		"while it runs and has no version of it": func(t *testing.T, a *keeping, store *objectstest.Store) *controlplane.LeaseKeeper {
			keeper := a.keeps()
			time.Sleep(time.Minute)
			if err := store.Delete(t.Context(), objects.Key{Kind: objects.Lease, Node: "n"}, objects.None); err != nil {
				t.Fatal(err)
			}
			a.nodeFails.Store(true)
			time.Sleep(15 * time.Second)
			a.nodeFails.Store(false)
			if _, err := store.Put(t.Context(), objects.Key{Kind: objects.Lease, Node: "n"}, objects.Put{Value: []byte("{")}); err != nil {
				t.Fatal(err)
			}
			return keeper
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := objectstest.New()
				a := &keeping{agent: newAgent(t, store, here)}
				keeper := run(t, a, store)
				time.Sleep(time.Minute)
				if stats := keeper.Stats(); time.Since(stats.LastRenewed) > 11*time.Second {
					t.Errorf("Stats() = %d renewals, the last at %v, error %v, want the Lease renewed", stats.Renewals, stats.LastRenewed, stats.LastError)
				}
				if lease, err := a.Lease(t.Context(), "n"); err != nil || controlplane.HolderOf(lease) != here {
					t.Errorf("Lease() = %v, %v, want it held by %v", lease, err, here)
				}
			})
		})
	}
}

// A host that had its Lease gets it again after an outage that was longer than the Lease, although its Node cannot be read.
func TestALeaseIsCreatedAgainBesideAnUnreadableNode(t *testing.T) {
	for name, c := range map[string]struct {
		held, lost, renewed bool
	}{
		"of a host that held it":            {held: true, renewed: true},
		"of a host that never held it":      {},
		"of a host that lost it to another": {held: true, lost: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := objectstest.New()
				a := &keeping{agent: newAgent(t, store, here)}
				a.nodeFails.Store(!c.held)
				keeper := a.keeps()
				time.Sleep(time.Minute)
				if c.lost {
					if err := store.Delete(t.Context(), objects.Key{Kind: objects.Lease, Node: "n"}, objects.None); err != nil {
						t.Fatal(err)
					}
					newAgent(t, store, there).renewed()
					time.Sleep(15 * time.Second)
				}
				unreadable(t, store, objects.Node)
				store.Inject(objectstest.Any, objectstest.Fault{Err: controlplane.ErrUnavailable})
				time.Sleep(time.Minute)
				store.Heal()
				a.nodeFails.Store(false)
				time.Sleep(time.Minute)
				if stats := keeper.Stats(); (stats.LastError == nil) != c.renewed {
					t.Errorf("Stats() = %d renewals, error %v, want the Lease created again: %v", stats.Renewals, stats.LastError, c.renewed)
				}
			})
		})
	}
}
