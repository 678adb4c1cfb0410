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

// KeyLeft is where the notes keep that a person took the Node away.
const KeyLeft = "left"

// Departure is the request of an operator that a Node stays deregistered. It survives the agent and
// the boot, until it is undone. It applies only to this name of a Node and this type of control
// plane.
type Departure struct {
	Node         string    `json:"node"`
	ControlPlane string    `json:"controlPlane"` // its type
	By           string    `json:"by"`
	At           time.Time `json:"at"`
	// Deleted reports that hostler deleted Node and Lease; else a user with the
	// right has to.
	Deleted bool `json:"deleted"`
}

// String says why nothing is written, and what ends that.
func (d Departure) String() string {
	what := "deregistered the Node"
	if !d.Deleted {
		what = "requested to deregister the Node, which a user with the permission has to delete,"
	}
	return fmt.Sprintf("%s %s on %s with `hostler leave`; this persists across restarts; run `hostler leave --undo` to register it again",
		d.By, what, d.At.UTC().Format("2006-01-02 15:04 MST"))
}

// Departures keeps whether a person had a Node leave a control plane. It is safe for
// concurrent use.
type Departures struct {
	*request[Departure]
	node, controlPlane string
}

// OpenDepartures reads whether a person had the Node of that name leave a control plane of that
// type before this start.
func OpenDepartures(notes Store, node, controlPlane string, log *slog.Logger) *Departures {
	log = log.With("component", "status")
	departure, err := loadRequest[Departure](notes, KeyLeft, log)
	if err != nil {
		log.Warn("cannot read stored leave request, registering the node", "error", err)
	}
	return &Departures{departure, node, controlPlane}
}

// Left returns who deregistered this Node; nil if nobody did, or if it was undone.
func (d *Departures) Left() *Departure {
	latest := d.get()
	if latest == nil || latest.Node != d.node || latest.ControlPlane != d.controlPlane {
		return nil
	}
	return latest
}

// Gone reports whether this Node has left this control plane.
func (d *Departures) Gone() bool { return d.Left() != nil }

// Left is that of the Departures.
func (r *Reporter) Left() *Departure { return r.o.Departures.Left() }

// Leave deletes the Node and its Lease, on request of the operator by. Neither is written again
// until Return. The Lease must not be renewed any more. With controlplane.ErrForbidden another
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
	r.event(corev1.EventTypeNormal, "Left", by+" deregistered the Node with `hostler leave`") // the last one
	r.o.Departures.set(&d)
	r.drop()
	r.view.wait(d.String())
	r.view.contact(nil)
	r.o.Log.Info("deregistered node until `hostler leave --undo`", "node", d.Node, "by", by, "deleted", d.Deleted)
	return err
}

// Return has the Node registered again that a person, named by or another, had
// leave. It reports whether one had, and does not wait for the control plane.
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
