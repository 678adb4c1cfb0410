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

// observation is what the reporter knows of the host, check by check. The turn guards it.
type observation struct {
	// remembered is whether it is known what was reported before this start;
	// forgotten is why not.
	remembered bool
	forgotten  error
	memory     status.Memory
	conditions []corev1.NodeCondition // of the last check
	short      bool                   // the host does not have what is reserved of it
	clones     []string               // names of the clones that were there at the last check
}

// remember takes up what an earlier run of the agent reported in this boot, so
// that conditions keep their times and Ready does not flip. What a control plane
// does not answer in time is read again in the next round, as long as nothing
// was written, and then waited for longer: the host has been read by then.
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
		return // nothing known of this boot
	}
	conditions := node.Status.Conditions
	if beside { // the others are the kubelet's
		conditions = status.OwnConditions(conditions)
	}
	r.observation.memory, r.observation.conditions = status.Remember(conditions), conditions
}

// observe makes the Node from facts, and reports what has changed since the last check.
func (r *Reporter) observe(facts status.Facts, options status.Options, beside bool) *corev1.Node {
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

// reportTransitions makes an Event, a count and a log line of each transition. The shutdown
// guard logs its own, and that the agent starts is no news. That pods are out of reach is,
// since the guard does not know of it.
func (r *Reporter) reportTransitions(node string, transitions []status.Transition) {
	for _, t := range transitions {
		if t.New.Reason == status.ReasonStarting {
			continue // true of every start, and over in a moment
		}
		r.o.Count(t.New)
		r.o.Recorder.Record(controlplane.NodeReference(node), t.EventType(), t.EventReason(), t.Message())
		switch {
		case t.New.Type == status.ShutdownProtected && t.New.Reason != status.ReasonPodsOutOfReach && (t.Old == nil || t.Old.Reason != status.ReasonPodsOutOfReach):
		case !t.Good():
			r.o.Log.Warn("condition", "type", t.New.Type, "status", t.New.Status, "reason", t.New.Reason, "message", t.New.Message)
		case t.Old != nil: // that all is well at the start goes without saying
			r.o.Log.Info("condition", "type", t.New.Type, "status", t.New.Status, "reason", t.New.Reason, "message", t.New.Message)
		}
	}
}

// reportReserved logs when the host has less than is reserved, and when it has enough again. Such a
// reservation is rejected at the start and by a reload, but a host may shrink later, or a
// filesystem may appear later.
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

// reportClones makes an Event of each clone that was not there at the last check.
func (r *Reporter) reportClones(node string) {
	clones := r.clones()
	for _, c := range clones {
		if !slices.Contains(r.observation.clones, c.Node) && r.Left() == nil {
			r.event(corev1.EventTypeWarning, "MachineCloned", c.Message(node)+onTheCopy+": `"+c.Fix()+"`")
		}
	}
	r.observation.clones = nil
	for _, c := range clones {
		r.observation.clones = append(r.observation.clones, c.Node)
	}
}

// clones are the other hosts with this machine's identity.
func (r *Reporter) clones() []controlplane.Clone {
	named := r.view.clones()
	if r.o.Twin != nil {
		if twin := r.o.Twin(); twin != nil {
			named = append([]controlplane.Clone{*twin}, named...)
		}
	}
	return named
}

// noteClones takes in which clones the stored Node names.
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
