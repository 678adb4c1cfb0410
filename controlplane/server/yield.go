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
	"hostler.io/hostler/internal/loop"
)

const (
	// otherLease is the Lease by which kube-controller-manager elects its leader.
	otherNamespace, otherLease = "kube-system", "kube-controller-manager"
	// otherInterval is from one check to the next.
	otherInterval = 5 * time.Second
)

// watchOther keeps the controller paused that kube-controller-manager has, as long as there is a Lease of
// one. Its end is no reason to take over: it may be restarting, or run without a leader for a while.
func (s *Server) watchOther(ctx context.Context, l *loop.Loop) error {
	kind := store.Leases
	kind.Namespace = otherNamespace
	alive := controlplane.NewLeaseWatch(nil)
	for {
		reading, cancel := context.WithTimeout(ctx, otherInterval)
		object, err := s.o.Store.Get(reading, kind, otherLease)
		cancel()
		alive.NoteAnswer(err)
		lease, _ := object.(*coordinationv1.Lease)
		switch {
		case errors.Is(err, controlplane.ErrNotFound):
			err = nil
			s.lifecycle.yields.Set("")
		case err == nil:
			s.lifecycle.yields.Set(evidence(lease, alive.See(lease)))
		case s.lifecycle.yields.Reason() == "":
			// What was known before stays.
		default:
			s.lifecycle.yields.Set(fmt.Sprintf("cannot read Lease %s/%s: %v", otherNamespace, otherLease, err))
		}
		l.Heartbeat(err)
		if err := bounded.Sleep(ctx, otherInterval); err != nil {
			return err
		}
	}
}

// evidence says who does the job, and how that is known.
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
