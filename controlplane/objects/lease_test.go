package objects_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/objects"
	"hostler.io/hostler/controlplane/objects/objectstest"
)

func TestALeaseIsOneWriteAndEndsByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := objectstest.New()
		a := newAgent(t, store, here)
		lease := a.renewed()
		if lease.UID == "" || lease.CreationTimestamp.IsZero() {
			t.Errorf("RenewLease() of a new lease = uid %q, created %v, want both set", lease.UID, lease.CreationTimestamp)
		}
		renew := func() {
			next, err := a.RenewLease(t.Context(), controlplane.Renew(lease, time.Now()))
			if err != nil {
				t.Fatalf("RenewLease() = %v, want no error", err)
			}
			lease = next
		}
		for range 3 {
			time.Sleep(39 * time.Second)
			counted(t, store, "the lease is there", 0, 1, renew)
		}
		uid := lease.UID
		time.Sleep(40 * time.Second)
		if _, err := a.Lease(t.Context(), "n"); !errors.Is(err, controlplane.ErrNotFound) {
			t.Errorf("Lease() 40 s after its last renewal = %v, want %v", err, controlplane.ErrNotFound)
		}
		if _, err := a.RenewLease(t.Context(), controlplane.Renew(lease, time.Now())); !errors.Is(err, controlplane.ErrConflict) {
			t.Errorf("RenewLease() of a lease that has ended = %v, want %v", err, controlplane.ErrConflict)
		}
		lease = newLease(t, "n", here)
		counted(t, store, "the lease has ended", 0, 1, renew)
		if lease.UID == uid {
			t.Errorf("uid of a lease that was created again = %s as before, want another", uid)
		}
	})
}

func TestALeaseWithoutADurationIsRefused(t *testing.T) {
	a := newAgent(t, objectstest.New(), here)
	lease := newLease(t, "n", here)
	lease.Spec.LeaseDurationSeconds = nil
	if _, err := a.RenewLease(t.Context(), lease); !errors.Is(err, controlplane.ErrInvalid) {
		t.Errorf("RenewLease() = %v, want %v: it would never end", err, controlplane.ErrInvalid)
	}
}

func TestLeaving(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(t *testing.T, a *agent, store *objectstest.Store)
		class   error
		leases  int
	}{
		"takes node and lease":           {prepare: func(t *testing.T, a *agent, _ *objectstest.Store) { a.registered(); a.renewed() }},
		"takes a lease that has no node": {prepare: func(t *testing.T, a *agent, _ *objectstest.Store) { a.renewed() }},
		"leaves another's lease":         {leases: 1, prepare: func(t *testing.T, a *agent, store *objectstest.Store) { newAgent(t, store, there).renewed() }},
		"reports a lease that stays": {leases: 1, class: controlplane.ErrLeaseStays, prepare: func(t *testing.T, a *agent, store *objectstest.Store) {
			a.registered()
			a.renewed()
			store.Inject(objectstest.Delete, objectstest.Fault{LeaseStays: true})
		}},
		"continues if others write": {prepare: func(t *testing.T, a *agent, store *objectstest.Store) {
			a.registered()
			a.renewed()
			store.Inject(objectstest.Delete, objectstest.Fault{Conflict: true, Times: 2})
		}},
		"reports a missing permission": {leases: 1, class: controlplane.ErrForbidden, prepare: func(t *testing.T, a *agent, store *objectstest.Store) {
			a.registered()
			a.renewed()
			store.Inject(objectstest.Delete, objectstest.Fault{Err: controlplane.ErrForbidden})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			store := objectstest.New()
			a := newAgent(t, store, here)
			c.prepare(t, a, store)
			if err := a.Leave(t.Context(), "n", here); !errors.Is(err, c.class) {
				t.Errorf("Leave() = %v, want %v", err, c.class)
			}
			leases, _, err := store.List(t.Context(), objects.Lease, "", "")
			if err != nil || len(leases) != c.leases {
				t.Errorf("leases that are left = %d, %v, want %d", len(leases), err, c.leases)
			}
			_, err = a.Node(t.Context(), "n")
			if stays := c.class == controlplane.ErrForbidden; errors.Is(err, controlplane.ErrNotFound) == stays {
				t.Errorf("Node() = %v, want it to stay: %v", err, stays)
			}
		})
	}
}
