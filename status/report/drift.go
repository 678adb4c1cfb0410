package report

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane"
)

// NodeState is the state of the Node on the control plane, apart from its content.
type NodeState struct {
	Waits string  // why nothing is written there although nothing failed; empty if it is
	Drift []Drift // what of the Node is not as configured, and not hostler's to correct
}

// Drift is one thing that a person has to correct.
type Drift struct{ Message, Fix string }

// NodeState is how it stands with the Node on the control plane.
func (r *Reporter) NodeState() NodeState {
	s := r.view.nodeState()
	s.Drift = append(s.Drift, clonesDrift(r.options().Name, r.clones())...)
	return s
}

// recreateHere has the Node created again where this host may delete it.
const recreateHere = "hostler leave && hostler leave --undo"

// shared reports whether others write the Node as well.
func (r *Reporter) shared() bool {
	_, shared := r.o.Client.(controlplane.NodeWatcher)
	return shared
}

// reconciles reports whether registering again fixes the Node's taints, and whether this
// host may do with its Node whatever is to be done.
func (r *Reporter) reconciles() bool {
	_, reconciles := r.o.Client.(controlplane.TaintReconciler)
	return reconciles
}

// drift names what this machine has set on the stored Node, which it wants to be
// wanted, and is not so there. To register again fixes it.
func (r *Reporter) drift(stored, wanted *corev1.Node) []string {
	drifted := controlplane.Drift(stored, wanted)
	if r.reconciles() {
		drifted = append(drifted, controlplane.TaintDrift(stored, wanted)...)
	}
	return drifted
}

// reportReplaced reports that this machine has taken another's place, by node.takeover or
// because that one is dead.
func (r *Reporter) reportReplaced(stored *corev1.Node, takeover bool) {
	before := r.registration.replaced
	if before == nil {
		return
	}
	r.registration.replaced = nil
	other := controlplane.IdentityOf(before).String()
	why := "whose lease expired"
	if takeover {
		why = "as set by node.takeover"
	}
	remains := r.remains(stored)
	r.o.Log.Warn("took over node from another machine", "node", stored.Name, "before", other, "new", stored.UID != before.UID, "remains", len(remains))
	rest := ""
	for _, d := range remains {
		rest += "; " + d.Message + "; fix it with `" + d.Fix + "`"
	}
	if rest == "" || stored.UID != before.UID {
		r.event(corev1.EventTypeNormal, "NodeReplaced", fmt.Sprintf("replaced the Node of another machine (%s), %s%s", other, why, rest))
		return
	}
	r.event(corev1.EventTypeWarning, "NodeTakenOver", fmt.Sprintf("took over the Node of another machine (%s), %s, and cleared the fields that a node may change%s", other, why, rest))
}

// remains are what a machine before this one has left on the Node.
func (r *Reporter) remains(stored *corev1.Node) []Drift {
	left := controlplane.RemainsOn(stored)
	if left == nil {
		return nil
	}
	var drift []Drift
	if fixed := left.Fixed(); fixed != "" {
		fix := recreateHere
		if r.shared() && !r.reconciles() {
			fix = "kubectl delete node " + stored.Name
		}
		drift = append(drift, Drift{
			Message: "the Node still has settings of the previous machine that hostler may not remove (" + fixed + "); after you delete the Node, hostler registers it again",
			Fix:     fix,
		})
	}
	if left.Unschedulable {
		drift = append(drift, Drift{Message: "the Node is still cordoned from the previous machine", Fix: "hostler uncordon"})
	}
	return drift
}

// noteRemains keeps what a machine before this one has left, and notes its end.
func (r *Reporter) noteRemains(stored *corev1.Node) {
	left := r.remains(stored)
	before := r.view.setRemains(left)
	if len(before) > 0 && len(left) == 0 {
		r.o.Log.Info("no settings of the previous machine left on the node", "node", stored.Name)
	}
}

// onTheCopy says where a clone is fixed.
const onTheCopy = "; on the copy, set a new machine ID and host name"

func clonesDrift(node string, clones []controlplane.Clone) []Drift {
	var drift []Drift
	for _, c := range clones {
		drift = append(drift, Drift{
			Message: c.Message(node) + onTheCopy,
			Fix:     c.Fix(),
		})
	}
	return drift
}

// noteTaints reports configured taints that the stored Node lacks, each set of
// them once, where hostler may not fix that itself.
func (r *Reporter) noteTaints(stored *corev1.Node) {
	if r.reconciles() {
		return
	}
	var drift []Drift
	if missing := controlplane.MissingTaints(stored, r.options().Taints); len(missing) > 0 {
		names := make([]string, len(missing))
		for i, t := range missing {
			names[i] = t.ToString()
		}
		drift = []Drift{{
			Message: fmt.Sprintf("the Node lacks the configured taints %s, and a node may not change its own taints", strings.Join(names, ", ")),
			Fix:     r.taintCommand(stored, missing),
		}}
	}
	before := r.view.setLackingTaints(drift)
	switch {
	case slices.Equal(before, drift):
	case len(drift) == 0:
		r.o.Log.Info("configured taints restored on the node", "node", stored.Name)
	default:
		r.o.Log.Warn("configured taints missing on the node", "node", stored.Name, "problem", drift[0].Message, "hint", drift[0].Fix)
		r.event(corev1.EventTypeWarning, "TaintsMissing", drift[0].Message+"; fix it with `"+drift[0].Fix+"`")
	}
}

// taintCommand is what a person types to give the Node the taints that it lacks.
func (r *Reporter) taintCommand(stored *corev1.Node, missing []corev1.Taint) string {
	if !r.shared() {
		return recreateHere
	}
	command := "kubectl taint nodes " + stored.Name
	overwrite := ""
	for _, m := range missing {
		command += " " + m.ToString()
		if slices.ContainsFunc(stored.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&m) }) {
			overwrite = " --overwrite"
		}
	}
	return command + overwrite
}
