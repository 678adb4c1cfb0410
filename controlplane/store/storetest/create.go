package storetest

import (
	"errors"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/store"
)

func checkCreate(b *bench) {
	const candidates = 8
	stores := []store.Store{b.Store, b.Another(b.T)}
	leases := store.Leases
	type created struct {
		object store.Object
		err    error
	}
	results := make(chan created, candidates)
	for i := range candidates {
		go func() {
			lease := newLease("a", time.Hour)
			lease.UID, lease.ResourceVersion = "another", ""
			o, err := stores[i%len(stores)].Create(b.ctx, leases, lease)
			results <- created{o, err}
		}()
	}
	var won []store.Object
	for range candidates {
		switch r := <-results; {
		case r.err == nil:
			won = append(won, r.object)
		case !errors.Is(r.err, controlplane.ErrConflict):
			b.Errorf("Create() among others = %v, want no error or one that is %q", r.err, controlplane.ErrConflict)
		}
	}
	if len(won) != 1 {
		b.Fatalf("%d of %d candidates have created the object, want one", len(won), candidates)
	}
	stored := b.get(leases, "a")
	if at := stored.GetCreationTimestamp(); at.IsZero() || stored.GetUID() == "" || stored.GetUID() == "another" || stored.GetUID() != won[0].GetUID() || stored.GetResourceVersion() != won[0].GetResourceVersion() {
		b.Errorf("stored = %v, created %v, want the same with a UID of its own and a creationTimestamp", stored, won[0])
	}
	if lease, _ := stored.(*coordinationv1.Lease); lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity != "a" {
		b.Errorf("stored = %v, want what was created", stored)
	}
	b.update(leases, "a", store.Preconditions{UID: won[0].GetUID(), Version: won[0].GetResourceVersion()}, "next")
	if err := b.Store.Delete(b.ctx, leases, "a", store.Preconditions{}, ""); err != nil {
		b.Fatal(err)
	}
	if again, err := b.Store.Create(b.ctx, leases, newLease("a", time.Hour)); err != nil || again.GetUID() == stored.GetUID() {
		b.Errorf("Create() after Delete() = %v, %v, want another object", again, err)
	}
	if _, err := b.Store.Create(b.ctx, leases, newLease("../a", time.Hour)); !errors.Is(err, controlplane.ErrInvalid) {
		b.Errorf("Create() of a path = %v, want an error that is %q", err, controlplane.ErrInvalid)
	}
}
