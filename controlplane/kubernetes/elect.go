package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/store"
)

// DefaultNamespace has the Leases by which leaders are elected, hostler-CONTROLLER for each controller.
const DefaultNamespace = "hostler-system"

// A write cannot contain a comparison with a term. So a process stops writing in its own term at a
// time on its monotonic clock, counted from before the request that began or extended the term. For
// other processes the term ends later: they count its duration from when they last saw the Lease
// change.

// ownTerm is a term of this process.
type ownTerm struct {
	lease    *coordinationv1.Lease // as last stored; not changed any more
	until    time.Time
	resigned bool
}

func (t ownTerm) ended() bool { return t.resigned || !time.Now().Before(t.until) }

// token identifies the term in a Lease.
func token(lease *coordinationv1.Lease) string {
	return fmt.Sprintf("%s/%d", lease.UID, orZero(lease.Spec.LeaseTransitions))
}

func orZero[T any](value *T) (v T) {
	if value != nil {
		v = *value
	}
	return v
}

// leader returns the leader in a Lease; the zero value if there is none.
func leader(lease *coordinationv1.Lease) store.Leader {
	candidate := orZero(lease.Spec.HolderIdentity)
	if candidate == "" {
		return store.Leader{}
	}
	return store.Leader{Candidate: candidate, Since: orZero(lease.Spec.AcquireTime).Time}
}

// within limits a write to the remaining time of its term; ErrDeposed if the term has ended.
func (f *Fleet) within(ctx context.Context, term store.Term) (context.Context, context.CancelFunc, error) {
	if term == (store.Term{}) {
		return ctx, func() {}, nil
	}
	held := f.held(term)
	if held.ended() {
		return nil, nil, store.ErrDeposed
	}
	ctx, cancel := context.WithDeadlineCause(ctx, held.until, controlplane.ErrNoAnswer)
	return ctx, cancel, nil
}

// held returns the state of a term; an unknown term counts as ended.
func (f *Fleet) held(term store.Term) ownTerm {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.terms[term.Token]
}

// extended records that a term was extended; false if it was resigned since.
func (f *Fleet) extended(term string, lease *coordinationv1.Lease, until time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	held, found := f.terms[term]
	if !found || held.resigned {
		return false
	}
	if until.After(held.until) {
		f.terms[term] = ownTerm{lease: lease, until: until}
	}
	return true
}

// resigned prevents further writes in a term, and returns its state.
func (f *Fleet) resigned(term string) (held ownTerm, found bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if held, found = f.terms[term]; found {
		held.resigned = true
		f.terms[term] = held
	}
	return held, found
}

// forget forgets a term.
func (f *Fleet) forget(term string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.terms, term)
}

// begin records a new term, and forgets terms that have ended.
func (f *Fleet) begin(term string, t ownTerm) {
	f.mu.Lock()
	defer f.mu.Unlock()
	maps.DeleteFunc(f.terms, func(_ string, t ownTerm) bool { return t.ended() })
	f.terms[term] = t
}

// alive reports whether the controller has a leader: the Lease names one, and has changed within
// its duration.
func (f *Fleet) alive(controller string, lease *coordinationv1.Lease) bool {
	ttl := store.TermOf(int64(orZero(lease.Spec.LeaseDurationSeconds)))
	return leader(lease) != (store.Leader{}) && f.sightings.Alive(controller, lease.ResourceVersion, ttl)
}

// Elect writes the candidate into the Lease of the controller, unless there is a leader.
func (f *Fleet) Elect(ctx context.Context, controller, candidate string, ttl time.Duration) (store.Term, store.Leader, error) {
	if err := store.CheckElect(controller, candidate, ttl); err != nil {
		return store.Term{}, store.Leader{}, err
	}
	operation := fmt.Sprintf("elect a leader of %q", controller)
	ctx, cancel := controlplane.Bound(ctx, leaseTimeout)
	defer cancel()
	var err error
	for range attempts {
		var record, stored *coordinationv1.Lease
		if record, err = f.record(ctx, operation, controller); err != nil {
			return store.Term{}, store.Leader{}, err
		}
		if record != nil && f.alive(controller, record) {
			return store.Term{}, leader(record), nil
		}
		sent := time.Now()
		if stored, err = f.write(ctx, operation, f.claim(record, controller, candidate, ttl)); err == nil {
			term := store.Term{Controller: controller, Candidate: candidate, TTL: ttl, Token: token(stored)}
			f.begin(term.Token, ownTerm{lease: stored, until: sent.Add(ttl)})
			return term, leader(stored), nil
		}
		if !errors.Is(err, controlplane.ErrConflict) {
			break
		}
	}
	return store.Term{}, store.Leader{}, err
}

// claim returns the Lease that makes a candidate the leader. record is the stored one; nil if there
// is none.
func (f *Fleet) claim(record *coordinationv1.Lease, controller, candidate string, ttl time.Duration) *coordinationv1.Lease {
	transitions := int32(0)
	if record == nil {
		record = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: f.client.o.Namespace, Name: leaseName(controller)}}
	} else {
		transitions = orZero(record.Spec.LeaseTransitions) + 1
	}
	now, seconds := metav1.NowMicro(), int32(ttl/time.Second)
	record.Spec.HolderIdentity, record.Spec.LeaseDurationSeconds, record.Spec.LeaseTransitions = &candidate, &seconds, &transitions
	record.Spec.AcquireTime, record.Spec.RenewTime = &now, &now
	return record
}

func leaseName(controller string) string { return "hostler-" + controller }

// Extend renews the Lease if it still belongs to the term.
func (f *Fleet) Extend(ctx context.Context, term store.Term) error {
	operation := fmt.Sprintf("extend term of %q", term.Controller)
	held := f.held(term)
	if held.ended() {
		return fmt.Errorf("%s: %w", operation, store.ErrDeposed)
	}
	sent := time.Now()
	stored, err := f.replace(ctx, operation, term, held.lease, func(lease *coordinationv1.Lease) *coordinationv1.Lease {
		return controlplane.Renew(lease, time.Now())
	})
	switch {
	case errors.Is(err, store.ErrDeposed):
		f.forget(term.Token)
	case err == nil && !f.extended(term.Token, stored, sent.Add(term.TTL)):
		err = fmt.Errorf("%s: %w", operation, store.ErrDeposed)
	}
	return err
}

// Resign removes the leader from the Lease if it still belongs to the term.
func (f *Fleet) Resign(ctx context.Context, term store.Term) error {
	held, found := f.resigned(term.Token)
	if !found {
		return nil
	}
	_, err := f.replace(ctx, fmt.Sprintf("resign from %q", term.Controller), term, held.lease, func(lease *coordinationv1.Lease) *coordinationv1.Lease {
		lease = lease.DeepCopy()
		lease.Spec.HolderIdentity = nil
		return lease
	})
	if errors.Is(err, store.ErrDeposed) {
		err = nil
	}
	if err == nil {
		f.forget(term.Token)
	}
	return err
}

// replace stores the next state of a term's Lease. If the Lease has changed, it is read again,
// because an earlier answer may have been lost. ErrDeposed if it does not belong to the term any
// more.
func (f *Fleet) replace(ctx context.Context, operation string, term store.Term, lease *coordinationv1.Lease, next func(*coordinationv1.Lease) *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	if ctx.Err() != nil {
		return nil, fmt.Errorf("%s: %w", operation, context.Cause(ctx))
	}
	ctx, cancel := controlplane.Bound(ctx, leaseTimeout)
	defer cancel()
	var lost error
	for range attempts {
		stored, err := f.write(ctx, operation, next(lease))
		if !errors.Is(err, controlplane.ErrConflict) {
			return stored, err
		}
		lost = err
		if lease, err = f.record(ctx, operation, term.Controller); err != nil {
			return nil, err
		}
		if lease == nil || token(lease) != term.Token || leader(lease).Candidate != term.Candidate {
			return nil, fmt.Errorf("%s: %w", operation, store.ErrDeposed)
		}
	}
	return nil, lost
}

// Leader reads the leader.
func (f *Fleet) Leader(ctx context.Context, controller string) (store.Leader, error) {
	operation := fmt.Sprintf("get leader of %q", controller)
	if err := controlplane.CheckCall(ctx, "get leader of", controller); err != nil {
		return store.Leader{}, err
	}
	ctx, cancel := controlplane.Bound(ctx, leaseTimeout)
	defer cancel()
	record, err := f.record(ctx, operation, controller)
	if err != nil || record == nil || !f.alive(controller, record) {
		return store.Leader{}, err
	}
	return leader(record), nil
}

// record reads the Lease of a controller; nil if there is none.
func (f *Fleet) record(ctx context.Context, operation, controller string) (*coordinationv1.Lease, error) {
	name := leaseName(controller)
	record, err := f.client.lease(ctx, operation, name, func(r rest.Interface) *rest.Request {
		return r.Get().Namespace(f.client.o.Namespace).Resource("leases").Name(name)
	})
	if errors.Is(err, controlplane.ErrNotFound) {
		return nil, nil
	}
	return record, err
}

// write stores a Lease if the stored one has not changed since it was read; ErrConflict.
func (f *Fleet) write(ctx context.Context, operation string, lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	namespace := f.client.o.Namespace
	stored, err := f.client.lease(ctx, operation, lease.Name, func(r rest.Interface) *rest.Request {
		if lease.ResourceVersion == "" {
			return r.Post().Namespace(namespace).Resource("leases").Body(lease)
		}
		return r.Put().Namespace(namespace).Resource("leases").Name(lease.Name).Body(lease)
	})
	if !errors.Is(err, controlplane.ErrNotFound) {
		return stored, err
	}
	if lease.ResourceVersion == "" {
		return nil, fmt.Errorf("%s: %w: there is no namespace %q: run `kubectl create namespace %s`", operation, controlplane.ErrInvalid, namespace, namespace)
	}
	return nil, fmt.Errorf("%s: %w: it was deleted", operation, controlplane.ErrConflict)
}
