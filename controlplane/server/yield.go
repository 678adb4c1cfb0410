package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/store"
	"hostler.io/hostler/internal/bounded"
)

const (
	// otherLease is the Lease with which kube-controller-manager elects its leader.
	otherNamespace, otherLease = "kube-system", "kube-controller-manager"
	// otherInterval is the time between checks.
	otherInterval = 5 * time.Second
)

// watchOther pauses the controllers that kube-controller-manager has, too, while the Lease of one
// exists. An expired Lease does not end the pause: kube-controller-manager may be restarting, or be
// without a leader for a while.
func (s *Controllers) watchOther(ctx context.Context, heartbeat func(error)) error {
	kind := store.Leases
	kind.Namespace = otherNamespace
	alive, known := controlplane.NewLeaseWatch(nil), false
	for {
		reading, cancel := context.WithTimeout(ctx, otherInterval)
		object, err := s.o.Store.Get(reading, kind, otherLease)
		cancel()
		alive.NoteAnswer(err)
		lease, _ := object.(*coordinationv1.Lease)
		switch {
		case errors.Is(err, controlplane.ErrNotFound):
			err = nil
			s.yield("")
		case err == nil:
			s.yield(evidence(lease, alive.See(lease)))
		case known:
			// The previous state stays.
		default:
			s.yield(fmt.Sprintf("cannot read Lease %s/%s: %v", otherNamespace, otherLease, err))
		}
		known = known || err == nil
		heartbeat(err)
		if err := bounded.Sleep(ctx, otherInterval); err != nil {
			return err
		}
	}
}

// yield pauses the controllers that kube-controller-manager may have; with an empty reason, they
// run.
func (s *Controllers) yield(reason string) {
	for _, c := range s.controllers {
		if c.yields != nil {
			c.yields.Set(reason)
		}
	}
}

// evidence describes which program has the job, and how that is known.
func evidence(lease *coordinationv1.Lease, sight controlplane.Observation) string {
	holder := "nobody"
	if h := lease.Spec.HolderIdentity; h != nil && *h != "" {
		holder = *h
	}
	state := "is being renewed"
	if sight.Dead {
		state = "is no longer renewed"
	}
	return fmt.Sprintf("kube-controller-manager has this controller: its Lease %s/%s, held by %s, %s; name the controller in `controllers` if that one does not run it", otherNamespace, otherLease, holder, state)
}
