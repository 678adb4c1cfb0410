package report

import (
	"context"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/status"
)

// observation is the reporter's state between checks of the host. turn guards it.
type observation struct {
	// remembered is whether the status from before this start is known; forgotten is the error if
	// not.
	remembered bool
	forgotten  error
	memory     status.Memory
	conditions []corev1.NodeCondition // from the last check
	short      bool                   // reservations exceed the host's resources
	clones     []string               // names of the clones at the last check
}

// remember reads the status that an earlier process of this boot has reported, so that conditions
// keep their times and Ready does not flip. If the control plane does not answer in time, the next
// round tries again until something was written. It then waits longer, because the host has been
// measured by then.
func (r *Reporter) remember(ctx context.Context, beside bool) {
	limit := time.Second
	if r.observation.forgotten != nil {
		limit = WriteTimeout / 2
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	node, err := r.o.Client.Node(ctx, r.options().Name)
	if err != nil && !errors.Is(err, controlplane.ErrNotFound) {
		r.observation.forgotten = err
		return
	}
	r.observation.remembered = true
	if err != nil || node.Status.NodeInfo.BootID != r.o.Facts.Machine().BootID {
		return // not from this boot
	}
	conditions := node.Status.Conditions
	if beside { // the others belong to the kubelet
		conditions = status.OwnConditions(conditions)
	}
	r.observation.memory, r.observation.conditions = status.Remember(conditions), conditions
}

// observe builds the Node from facts, and reports changes since the last check.
func (r *Reporter) observe(facts status.Facts, options status.Options, beside bool) *corev1.Node {
	if facts.Missing.Checks {
		facts.Custom = r.unchecked()
	}
	node, memory := status.Node(facts, options, r.observation.memory, r.o.Now())
	transitions := status.Transitions(r.observation.conditions, node.Status.Conditions)
	r.observation.memory, r.observation.conditions = memory, node.Status.Conditions
	if beside { // the kubelet reports the rest
		transitions = slices.DeleteFunc(transitions, func(t status.Transition) bool { return !status.IsOwn(t.New.Type) })
	}
	r.reportTransitions(options.Name, transitions)
	r.reportReserved(facts, options)
	r.reportClones(options.Name)
	return node
}

// unchecked returns the custom conditions of hostler from before this start. They stay until the checks are known.
func (r *Reporter) unchecked() (list []status.Custom) {
	for _, c := range r.observation.conditions {
		if status.IsCustom(c.Type) && (status.IsOwn(c.Type) || slices.Contains(r.published.types(), c.Type)) {
			list = append(list, status.Custom{Type: c.Type, Answer: status.NotRunYet})
		}
	}
	return list
}

// reportTransitions records an Event, a count and a log line for each transition. It does not log
// what the shutdown guard logs itself, except that pods are out of reach, which the guard does not
// know. It ignores the start of the agent.
func (r *Reporter) reportTransitions(node string, transitions []status.Transition) {
	for _, t := range transitions {
		if t.New.Reason == status.ReasonStarting {
			continue // the same at every start, and over soon
		}
		r.o.Count(t.New)
		r.o.Recorder.Record(controlplane.NodeReference(node), t.EventType(), t.EventReason(), t.Message())
		switch {
		case t.New.Type == status.ShutdownProtected && t.New.Reason != status.ReasonPodsOutOfReach && (t.Old == nil || t.Old.Reason != status.ReasonPodsOutOfReach):
		case !t.Good():
			r.o.Log.Warn("condition", "type", t.New.Type, "status", t.New.Status, "reason", t.New.Reason, "message", t.New.Message)
		case t.Old != nil: // a good condition at the start is not worth a log line
			r.o.Log.Info("condition", "type", t.New.Type, "status", t.New.Status, "reason", t.New.Reason, "message", t.New.Message)
		}
	}
}

// reportReserved logs when reservations exceed the host's resources, and when they fit again. The
// start and a reload reject such reservations, but later a host may shrink, or a filesystem may
// appear.
func (r *Reporter) reportReserved(facts status.Facts, o status.Options) {
	err := status.CheckReserved(facts, o.Reserved, o.Pressure)
	switch {
	case err != nil && !r.observation.short:
		r.o.Log.Warn("reserved resources exceed the host's capacity, nothing left for pods", "error", err)
	case err == nil && r.observation.short:
		r.o.Log.Info("reserved resources fit the host's capacity again")
	}
	r.observation.short = err != nil
}

// reportClones records an Event for each clone that is new since the last check.
func (r *Reporter) reportClones(node string) {
	clones := r.Clones()
	for _, c := range clones {
		if !slices.Contains(r.observation.clones, c.Node) && r.Left() == nil {
			r.event(corev1.EventTypeWarning, "MachineCloned", c.Message(node)+cloneFix+": `"+c.Fix()+"`")
		}
	}
	r.observation.clones = nil
	for _, c := range clones {
		r.observation.clones = append(r.observation.clones, c.Node)
	}
}

// Clones returns the other hosts with this machine's identity.
func (r *Reporter) Clones() []controlplane.Clone {
	named := r.view.clones()
	if r.o.Twin != nil {
		if twin := r.o.Twin(); twin != nil {
			named = append([]controlplane.Clone{*twin}, named...)
		}
	}
	return named
}

// noteClones stores the clones that the stored Node names, and reports changes.
func (r *Reporter) noteClones(stored *corev1.Node) {
	now := controlplane.NamedClones(stored)
	before := r.view.setClones(now)
	if slices.Equal(before, now) {
		return
	}
	if len(now) == 0 {
		r.o.Log.Info("no other node shares this host's machine ID any more")
	}
	for _, c := range now {
		r.o.Log.Error("another node shares this host's machine ID", "problem", c.Message(stored.Name), "hint", c.Fix())
	}
	r.reportClones(stored.Name)
}
