package report

import (
	"context"
	"errors"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane"
)

// KeyCordon is where the notes keep what a person decided.
const KeyCordon = "cordon"

// Decision is the last cordon or uncordon on this host. It survives the agent, the boot and the
// Node.
type Decision struct {
	Unschedulable bool      `json:"unschedulable"`
	By            string    `json:"by"`
	At            time.Time `json:"at"`
	// Delivered reports that the control plane has taken it. From then on the
	// control plane is right: whoever changes it there has the later word.
	Delivered bool `json:"delivered"`
	// Own is a cordon of hostler's own, for a reboot. A person's takes its place.
	Own bool `json:"own,omitempty"`
}

// cordons keeps the latest decision. It is safe for concurrent use.
type cordons struct{ *request[Decision] }

// newCordons reads what was decided before this start.
func newCordons(notes Store, log *slog.Logger) *cordons {
	log = log.With("component", "cordon")
	decision, err := loadRequest[Decision](notes, KeyCordon, log)
	if err != nil {
		log.Warn("cannot read stored cordon request, using the control plane's value", "error", err)
	}
	return &cordons{decision}
}

// decided is the latest decision; nil if there is none.
func (c *cordons) decided() *Decision { return c.get() }

// wanted is whether the Node is to be created closed to new pods: as a person
// decided, else as configured.
func (c *cordons) wanted(configured bool) bool {
	if d := c.decided(); d != nil {
		return d.Unschedulable
	}
	return configured
}

// pending reports whether the decision is not yet written to the control plane.
func (c *cordons) pending() bool {
	d := c.decided()
	return d != nil && !d.Delivered
}

// Errors of Cordon that mean that nothing was done.
var (
	ErrNotOurs    = errors.New("the node is managed by another owner")
	ErrNoCordoner = errors.New("this control plane cannot cordon nodes")
)

// errNoNode is an error of Cordon that passes.
var errNoNode = errors.New("the node is not registered yet")

// Decided returns the last decision on this host; nil if there is none, or if the control plane was
// changed since.
func (r *Reporter) Decided() *Decision { return r.cordons.decided() }

// Cordon closes the Node to new pods, or opens it, on request of an operator. It reports whether
// that changes anything. With ErrNotOurs and ErrNoCordoner nothing was done. With any other error
// the decision is saved, and written when the control plane answers.
func (r *Reporter) Cordon(ctx context.Context, want Decision) (changed bool, err error) {
	if !r.o.Mine() {
		return false, ErrNotOurs
	}
	cordoner, able := r.o.Client.(controlplane.Cordoner)
	if !able {
		return false, ErrNoCordoner
	}
	changed = r.unschedulable() != want.Unschedulable
	if want.Own && !changed {
		return false, nil // whoever cordoned it
	}
	decided := want
	decided.Delivered = false
	if before := r.cordons.decided(); before != nil && before.Unschedulable == want.Unschedulable && !changed && !before.Own {
		decided = *before // who said it first, and when, stands
	}
	r.cordons.set(&decided)
	// A round that read the Node before would take the change for another client's.
	work, release, err := r.turn.take(ctx, false)
	if err != nil {
		r.Changed()
		return changed, err
	}
	defer release()
	if !r.registration.registered() {
		r.Changed()
		return changed, errNoNode // it is delivered with the registration
	}
	stored, err := cordoner.Cordon(work, r.options().Name, want.Unschedulable)
	if err != nil {
		r.Changed()
		return changed, preempted(work, err)
	}
	delivered := decided
	delivered.Delivered = true
	r.cordons.replace(&decided, &delivered)
	r.adopt(stored)
	return changed, nil
}

// unschedulable is whether the Node takes no new pods, as far as is known here: a
// person's word that is not delivered counts.
func (r *Reporter) unschedulable() bool {
	if d := r.cordons.decided(); d != nil && !d.Delivered {
		return d.Unschedulable
	}
	cordoned, known := r.view.unschedulable()
	if !known {
		return r.options().Unschedulable
	}
	return cordoned
}

// reportCordon makes an Event of a cordon that another client has changed.
func (r *Reporter) reportCordon(stored *corev1.Node) {
	known := r.registration.known
	if known == nil || known.Spec.Unschedulable == stored.Spec.Unschedulable || r.cordons.pending() {
		return
	}
	reason, did := "NodeSchedulable", "uncordoned"
	if stored.Spec.Unschedulable {
		reason, did = "NodeNotSchedulable", "cordoned"
	}
	r.event(corev1.EventTypeNormal, reason, did+" on the control plane")
}

// settle reconciles the last decision with the stored Node. A decision that was not delivered is
// written. A later change on the control plane wins. The caller has the turn.
func (r *Reporter) settle(ctx context.Context, stored *corev1.Node) (*corev1.Node, error) {
	d := r.cordons.decided()
	switch {
	case d == nil || d.Delivered && d.Unschedulable == stored.Spec.Unschedulable:
		return stored, nil
	case d.Delivered:
		r.o.Log.Info("changed cordon on the control plane", "unschedulable", stored.Spec.Unschedulable)
		r.cordons.replace(d, nil)
		return stored, nil
	}
	if d.Unschedulable != stored.Spec.Unschedulable {
		cordoner, able := r.o.Client.(controlplane.Cordoner)
		if !able { // it was decided under another control plane
			r.cordons.replace(d, nil)
			return stored, nil
		}
		reported, err := cordoner.Cordon(ctx, stored.Name, d.Unschedulable)
		if err != nil {
			return stored, err
		}
		stored = reported
	}
	delivered := *d
	delivered.Delivered = true
	r.cordons.replace(d, &delivered)
	return stored, nil
}
