package maintenance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"hostler.io/hostler/agent/owner"
	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/internal/caller"
	"hostler.io/hostler/internal/hint"
	"hostler.io/hostler/status/report"
)

// hasLeft is why loops that write to the control plane are paused.
const hasLeft = "the node has left the control plane"

// Leave deletes the Node and its Lease from the control plane, as a user requested. It pauses the
// renewal first, so that no renewal creates the Lease again. If the host may not delete them, the
// renewal stays paused, so that an administrator can delete them.
func (d *Drainer) Leave(ctx context.Context) (LeaveReport, error) {
	answer := LeaveReport{Node: d.o.Node, ControlPlane: d.o.ControlPlane, By: caller.Name(ctx)}
	before := d.o.Member.Reason()
	d.o.Member.Set(hasLeft)
	pausing, rested := context.WithTimeout(ctx, report.WriteTimeout)
	defer rested()
	err := d.o.Member.Idle(pausing)
	if err == nil {
		reporting, cancel := context.WithTimeout(ctx, report.WriteTimeout)
		defer cancel()
		err = d.o.Reporter.Leave(reporting, answer.By)
	}
	switch {
	case err == nil:
		answer.Changed = true
		answer.Message = together(d.removePods(ctx), d.rememberLeave(ctx))
		return answer, nil
	case errors.Is(err, controlplane.ErrLeaseStays):
		answer.Changed = true
		stays := fmt.Sprintf("the lease is not renewed any more, and runs out by itself: %v", err)
		answer.Message = together(stays, d.removePods(ctx), d.rememberLeave(ctx))
		return answer, nil
	case errors.Is(err, controlplane.ErrForbidden):
		e := &hint.Error{
			Message: fmt.Sprintf("leave: this host no longer renews its lease nor writes its Node, also after a restart, but may not delete them: %v", err),
			Hint:    "have an administrator delete the Node, which also deletes the lease; to undo, run `hostler leave --undo`",
		}
		e.Message = together(e.Message, d.removePods(ctx), d.rememberLeave(ctx))
		return answer, e
	}
	d.o.Member.Set(before) // resume the loops
	if errors.Is(err, report.ErrNotOurs) {
		_, other, _ := d.o.Owners.Mine(owner.Node)
		e := &hint.Error{Message: fmt.Sprintf("leave: node %s is not hostler's: %s", d.o.Node, other.Evidence), Hint: "a host with node.enabled: false has no Node to delete"}
		if other.Name == owner.Kubelet {
			e.Hint = fmt.Sprintf("the Node is the kubelet's: stop that, and then `kubectl delete node %s`", d.o.Node)
		}
		return answer, e
	}
	if other, taken := errors.AsType[*controlplane.IdentityError](err); taken {
		return answer, &hint.Error{
			Message: fmt.Sprintf("leave: node %s belongs to another machine (%s), and stays; this one is %s", d.o.Node, other.Theirs, other.Ours),
			Hint:    "this host has no Node to delete; give it another node.name, or set node.enabled: false",
		}
	}
	return answer, &hint.Error{
		Message: fmt.Sprintf("leave: node %s: %v", d.o.Node, err),
		Hint:    "nothing has changed: see `hostler status`, and try again",
	}
}

// Return undoes Leave, as a user requested. The Lease is renewed at once. The Node is registered
// when the control plane answers.
func (d *Drainer) Return(ctx context.Context) (LeaveReport, error) {
	answer := LeaveReport{Node: d.o.Node, ControlPlane: d.o.ControlPlane, By: caller.Name(ctx)}
	waiting, cancel := context.WithTimeout(ctx, report.WriteTimeout)
	defer cancel()
	changed, err := d.o.Reporter.Return(waiting, answer.By)
	if err != nil {
		return answer, &hint.Error{
			Message: fmt.Sprintf("return: node %s: %v", d.o.Node, err),
			Hint:    "nothing has changed: the Node stays off the control plane; see `hostler status`, and try again",
		}
	}
	if answer.Changed = changed; changed {
		d.o.Member.Set("")
		answer.Message = d.rememberLeave(ctx)
	}
	return answer, nil
}

// rememberLeave syncs the state to the disk. If that fails, it returns a message.
func (d *Drainer) rememberLeave(ctx context.Context) string {
	if err := d.onDisk(ctx); err != nil {
		return "it may not survive a power cut: " + err.Error()
	}
	return ""
}

// removePods deletes the objects of this host's pods. If some remain, it returns why.
func (d *Drainer) removePods(ctx context.Context) string {
	if d.o.RemovePods == nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, report.WriteTimeout)
	defer cancel()
	if err := d.o.RemovePods(ctx); err != nil {
		return "objects of pods stay, remove them: " + err.Error()
	}
	return ""
}

// together joins the messages that are not empty.
func together(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(part string) bool { return part == "" }), "; ")
}
