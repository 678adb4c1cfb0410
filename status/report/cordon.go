package report

import (
	"context"
	"errors"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane"
)

// KeyCordon is the key of the last decision in the notes.
const KeyCordon = "cordon"

// Decision is the last cordon or uncordon on this host. It survives restarts of the agent and of
// the host, and the deletion of the Node.
type Decision struct {
	Unschedulable bool      `json:"unschedulable"`
	By            string    `json:"by"`
	At            time.Time `json:"at"`
	// Delivered means that the decision is on the control plane. From then on, later changes there
	// win.
	Delivered bool `json:"delivered"`
	// Own means that hostler itself cordoned the Node for a reboot. A person's decision replaces
	// it.
	Own bool `json:"own,omitempty"`
}

// cordons stores the last decision. It is safe for concurrent use.
type cordons struct{ *request[Decision] }

// newCordons reads the stored decision.
func newCordons(notes Store, log *slog.Logger) *cordons {
	log = log.With("component", "cordon")
	decision, err := loadRequest[Decision](notes, KeyCordon, log)
	if err != nil {
		log.Warn("cannot read stored cordon request, using the control plane's value", "error", err)
	}
	return &cordons{decision}
}

// decided returns the last decision, or nil.
func (c *cordons) decided() *Decision { return c.get() }

// wanted returns whether a new Node is unschedulable: by the last decision, else as configured.
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

// Errors with which Cordon has changed nothing.
var (
	ErrNotOurs    = errors.New("the node is managed by another owner")
	ErrNoCordoner = errors.New("this control plane cannot cordon nodes")
)

// errNoNode is a temporary error of Cordon.
var errNoNode = errors.New("the node is not registered yet")

// Decided returns the last decision on this host, or nil if there is none or if it was changed
// later on the control plane.
func (r *Reporter) Decided() *Decision { return r.cordons.decided() }

// Cordon cordons or uncordons the Node, as an operator requested. It reports whether that changes
// anything. With ErrNotOurs and ErrNoCordoner nothing was changed. With any other error the
// decision is stored, and written when the control plane answers.
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
		return false, nil // cordoned already, by anybody
	}
	decided := want
	decided.Delivered = false
	if before := r.cordons.decided(); before != nil && before.Unschedulable == want.Unschedulable && !changed && !before.Own {
		decided = *before // keep the first user and time
	}
	r.cordons.set(&decided)
	// A round that has read the Node before would mistake this for a change by another client.
	work, release, err := r.turn.take(ctx, false)
	if err != nil {
		r.Changed()
		return changed, err
	}
	defer release()
	if !r.registration.registered() {
		r.Changed()
		return changed, errNoNode // written when the Node is registered
	}
	stored, err := cordoner.Cordon(work, r.options().Name, want.Unschedulable, want.Own)
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

// unschedulable returns whether the Node takes no new pods, as far as is known. A decision that is
// not on the control plane yet counts.
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

// reportCordon records an Event if another client has cordoned or uncordoned the Node.
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

// settle reconciles the last decision with the stored Node. If the decision is not on the control
// plane yet, it writes it. A later change on the control plane wins. The caller has the turn.
func (r *Reporter) settle(ctx context.Context, stored *corev1.Node) (*corev1.Node, error) {
	d := r.cordons.decided()
	switch {
	case d == nil && r.o.Unread: // the cordon may be the decision that could not be read
		return stored, nil
	case controlplane.MarkedInVain(stored) && (d == nil || d.Delivered): // a later cordon would count as one of hostler
		r.cordons.set(nil)
		return r.unmark(ctx, stored)
	case controlplane.OwnCordon(stored) && (d == nil || !d.Unschedulable) && !r.o.Rebooting(): // the store went back
		over := Decision{By: "hostler, after a reboot", At: time.Now().UTC()}
		r.o.Log.Info("uncordoning the node again, as after its reboot", "node", stored.Name)
		r.cordons.set(&over)
		d = &over
	case d == nil || d.Delivered && d.Unschedulable == stored.Spec.Unschedulable:
		return stored, nil
	case d.Delivered:
		r.o.Log.Info("changed cordon on the control plane", "unschedulable", stored.Spec.Unschedulable)
		r.cordons.replace(d, nil)
		return stored, nil
	}
	own := d.Unschedulable && d.Own
	if d.Unschedulable != stored.Spec.Unschedulable || own != controlplane.OwnCordon(stored) {
		cordoner, able := r.o.Client.(controlplane.Cordoner)
		if !able { // decided with another control plane
			r.cordons.replace(d, nil)
			return stored, nil
		}
		reported, err := cordoner.Cordon(ctx, stored.Name, d.Unschedulable, own)
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

// unmark removes the mark of a cordon from a Node that is not cordoned.
func (r *Reporter) unmark(ctx context.Context, stored *corev1.Node) (*corev1.Node, error) {
	cordoner, able := r.o.Client.(controlplane.Cordoner)
	if !able {
		return stored, nil
	}
	unmarked, err := cordoner.Cordon(ctx, stored.Name, false, false)
	if err != nil {
		return stored, err
	}
	return unmarked, nil
}
