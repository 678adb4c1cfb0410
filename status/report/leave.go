package report

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane"
)

// KeyLeft is the key in the notes for a request to deregister the Node.
const KeyLeft = "left"

// Departure is an operator's request that a Node stays deregistered. It survives restarts of the
// agent and of the host, until it is undone. It applies only to a Node of this name and a control
// plane of this type.
type Departure struct {
	Node         string    `json:"node"`
	ControlPlane string    `json:"controlPlane"` // its type
	By           string    `json:"by"`
	At           time.Time `json:"at"`
	// Deleted means that hostler deleted Node and Lease; else a user with the permission must.
	Deleted bool `json:"deleted"`
}

// String says why nothing is written, and how to end that.
func (d Departure) String() string {
	what := "deregistered the Node"
	if !d.Deleted {
		what = "requested to deregister the Node, which a user with the permission has to delete,"
	}
	return fmt.Sprintf("%s %s on %s with `hostler leave`; this persists across restarts; run `hostler leave --undo` to register it again",
		d.By, what, d.At.UTC().Format("2006-01-02 15:04 MST"))
}

// Departures stores whether an operator deregistered a Node. It is safe for concurrent use.
type Departures struct {
	*request[Departure]
	node, controlPlane string
}

// OpenDepartures reads whether an operator has deregistered the Node of that name on a control
// plane of that type.
func OpenDepartures(notes Store, node, controlPlane string, log *slog.Logger) *Departures {
	log = log.With("component", "status")
	departure, err := loadRequest[Departure](notes, KeyLeft, log)
	if err != nil {
		log.Warn("cannot read stored leave request, registering the node", "error", err)
	}
	return &Departures{departure, node, controlPlane}
}

// Left returns the request that deregistered this Node, or nil if there is none or if it was
// undone.
func (d *Departures) Left() *Departure {
	latest := d.get()
	if latest == nil || latest.Node != d.node || latest.ControlPlane != d.controlPlane {
		return nil
	}
	return latest
}

// Gone reports whether this Node was deregistered on this control plane.
func (d *Departures) Gone() bool { return d.Left() != nil }

// Left returns the request that deregistered this Node, or nil.
func (r *Reporter) Left() *Departure { return r.o.Departures.Left() }

// Leave deletes the Node and its Lease, as the operator by requested. Neither is written again
// until Return, so the caller must stop renewing the Lease. With controlplane.ErrForbidden another
// client must delete them, and they are not written meanwhile. With controlplane.ErrLeaseStays the
// Node is deleted, and the Lease expires. With ErrNotOurs, *controlplane.IdentityError (the Node
// belongs to another machine) or any other error, nothing changes.
func (r *Reporter) Leave(ctx context.Context, by string) error {
	if !r.o.Mine() {
		return ErrNotOurs
	}
	work, release, err := r.turn.take(ctx, false)
	if err != nil {
		return err
	}
	defer release()
	machine := r.o.Facts.Machine()
	err = r.o.Client.Leave(work, r.options().Name, controlplane.Identity{MachineID: machine.MachineID, SystemUUID: machine.SystemUUID})
	deleted := err == nil || errors.Is(err, controlplane.ErrLeaseStays)
	if !deleted && !errors.Is(err, controlplane.ErrForbidden) {
		return preempted(work, err)
	}
	d := Departure{Node: r.options().Name, ControlPlane: r.o.Client.Type(), By: by, At: r.o.Now(), Deleted: deleted}
	r.event(corev1.EventTypeNormal, "Left", by+" deregistered the Node with `hostler leave`") // the last Event
	r.o.Departures.set(&d)
	r.drop()
	r.view.wait(d.String())
	r.view.contact(nil)
	r.o.Log.Info("deregistered node until `hostler leave --undo`", "node", d.Node, "by", by, "deleted", d.Deleted)
	return err
}

// Return undoes a request to deregister the Node, as the operator by requested. It reports whether
// there was one, and does not wait for the control plane.
func (r *Reporter) Return(ctx context.Context, by string) (bool, error) {
	_, release, err := r.turn.take(ctx, false)
	if err != nil {
		return false, err
	}
	defer release()
	if r.Left() == nil {
		return false, nil
	}
	r.o.Departures.set(nil)
	r.view.wait("")
	r.o.Log.Info("registering node again after `hostler leave --undo`", "node", r.options().Name, "by", by)
	r.Changed()
	return true, nil
}
