package objects_test

import (
	"errors"
	"testing"
	"time"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/objects/objectstest"
)

func TestAStoreThatIsSetBackIsTakenAsItIs(t *testing.T) {
	for name, test := range map[string]func(t *testing.T, a *agent, store *objectstest.Store, restore func()){
		"to the node before its last changes": func(t *testing.T, a *agent, store *objectstest.Store, _ func()) {
			node := a.registered()
			restore := store.Backup()
			update := newNode("n", here)
			update.Status.Conditions[0].Reason = "Later"
			if _, err := a.UpdateStatus(t.Context(), update); err != nil {
				t.Fatal(err)
			}
			restore()
			update.Status.Conditions[0].Reason = "Latest"
			stored, err := a.UpdateStatus(t.Context(), update)
			if err != nil || stored.UID != node.UID || stored.Status.Conditions[0].Reason != "Latest" {
				t.Errorf("UpdateStatus() = %v, %v, want it stored", stored, err)
			}
		},
		"to before the node": func(t *testing.T, a *agent, store *objectstest.Store, restore func()) {
			node := a.registered()
			restore()
			for range 2 {
				if _, err := a.UpdateStatus(t.Context(), newNode("n", here)); !errors.Is(err, controlplane.ErrNotFound) {
					t.Errorf("UpdateStatus() = %v, want %v", err, controlplane.ErrNotFound)
				}
			}
			if again := a.registered(); again.UID == node.UID {
				t.Errorf("uid of the node that was created again = %s as before, want another", again.UID)
			}
		},
		"to a node before this one": func(t *testing.T, a *agent, store *objectstest.Store, _ func()) {
			a.registered()
			restore := store.Backup()
			if err := a.Leave(t.Context(), "n", here); err != nil {
				t.Fatal(err)
			}
			a.registered()
			restore()
			if _, err := a.UpdateStatus(t.Context(), newNode("n", here)); !errors.Is(err, controlplane.ErrNotFound) {
				t.Errorf("UpdateStatus() = %v, want %v: it is another node", err, controlplane.ErrNotFound)
			}
			a.registered()
			if _, err := a.UpdateStatus(t.Context(), newNode("n", here)); err != nil {
				t.Errorf("UpdateStatus() of the one that is there = %v, want no error", err)
			}
		},
		"to another machine's node": func(t *testing.T, a *agent, store *objectstest.Store, _ func()) {
			b := newAgent(t, store, there)
			b.registered()
			restore := store.Backup()
			if _, err := a.register(controlplane.RegisterOptions{Takeover: true}); err != nil {
				t.Fatal(err)
			}
			restore()
			if _, err := a.UpdateStatus(t.Context(), newNode("n", here)); !errors.Is(err, controlplane.ErrNotFound) {
				t.Errorf("UpdateStatus() = %v, want %v", err, controlplane.ErrNotFound)
			}
		},
		"to a lease before its last renewal": func(t *testing.T, a *agent, store *objectstest.Store, _ func()) {
			lease := a.renewed()
			restore := store.Backup()
			lease, err := a.RenewLease(t.Context(), controlplane.Renew(lease, time.Now()))
			if err != nil {
				t.Fatal(err)
			}
			restore()
			if _, err := a.RenewLease(t.Context(), controlplane.Renew(lease, time.Now())); !errors.Is(err, controlplane.ErrConflict) {
				t.Errorf("RenewLease() from a version that is gone = %v, want %v", err, controlplane.ErrConflict)
			}
			if lease, err = a.Lease(t.Context(), "n"); err != nil {
				t.Fatal(err)
			}
			if _, err := a.RenewLease(t.Context(), controlplane.Renew(lease, time.Now())); err != nil {
				t.Errorf("RenewLease() from the stored version = %v, want no error", err)
			}
		},
		"to before the lease": func(t *testing.T, a *agent, store *objectstest.Store, restore func()) {
			lease := a.renewed()
			restore()
			counted(t, store, "the lease is gone", 0, 1, func() {
				if _, err := a.RenewLease(t.Context(), controlplane.Renew(lease, time.Now())); !errors.Is(err, controlplane.ErrConflict) {
					t.Errorf("RenewLease() = %v, want %v", err, controlplane.ErrConflict)
				}
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			store := objectstest.New()
			test(t, newAgent(t, store, here), store, store.Backup())
		})
	}
}
