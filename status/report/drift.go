package report

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane"
)

// NodeState is the state of the Node on the control plane, without its content.
type NodeState struct {
	Waits string  // why nothing is written there although nothing failed, or ""
	Drift []Drift // differences from the configuration that hostler cannot fix
}

// Drift is a difference that a person must fix.
type Drift struct{ Message, Fix string }

// NodeState returns the state of the Node on the control plane.
func (r *Reporter) NodeState() NodeState {
	s := r.view.nodeState()
	s.Drift = append(s.Drift, clonesDrift(r.options().Name, r.Clones())...)
	return s
}

// recreateHere creates the Node again if this host may delete it.
const recreateHere = "hostler leave && hostler leave --undo"

// shared reports whether other clients also write the Node.
func (r *Reporter) shared() bool {
	_, shared := r.o.Client.(controlplane.NodeWatcher)
	return shared
}

// reconciles reports whether registering again restores the Node's taints. It also means that this
// host may change everything of its Node.
func (r *Reporter) reconciles() bool {
	_, reconciles := r.o.Client.(controlplane.TaintReconciler)
	return reconciles
}

// drift returns the settings of this machine that the stored Node lacks or that differ there.
// Registering again fixes them.
func (r *Reporter) drift(stored, wanted *corev1.Node) []string {
	drifted := controlplane.Drift(stored, wanted)
	if r.reconciles() {
		drifted = append(drifted, controlplane.TaintDrift(stored, wanted)...)
	}
	return drifted
}

// reportReplaced reports that this machine has replaced another one, because of node.takeover or
// because the other is dead.
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

// remains returns what an earlier machine has left on the Node.
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
			Message: "the Node still has settings of the previous machine that hostler may not remove (" + fixed + "); after you delete the Node, hostler registers it again. No container stops",
			Fix:     fix,
		})
	}
	if left.Unschedulable {
		drift = append(drift, Drift{Message: "the Node is still cordoned from the previous machine", Fix: "hostler uncordon"})
	}
	return drift
}

// noteRemains stores what an earlier machine has left, and logs when nothing is left.
func (r *Reporter) noteRemains(stored *corev1.Node) {
	left := r.remains(stored)
	before := r.view.setRemains(left)
	if len(before) > 0 && len(left) == 0 {
		r.o.Log.Info("no settings of the previous machine left on the node", "node", stored.Name)
	}
}

// cloneFix is the fix for a clone.
const cloneFix = "; on the copy, set a new machine ID and host name"

func clonesDrift(node string, clones []controlplane.Clone) []Drift {
	var drift []Drift
	for _, c := range clones {
		drift = append(drift, Drift{
			Message: c.Message(node) + cloneFix,
			Fix:     c.Fix(),
		})
	}
	return drift
}

// noteTaints reports configured taints that the stored Node lacks, if hostler may not fix that
// itself. It reports each set once.
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

// taintCommand returns the command that adds the missing taints to the Node.
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
