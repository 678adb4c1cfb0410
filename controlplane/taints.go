package controlplane

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// taintUninitialized is the taint of a new Node that a cloud controller manager has not initialized
// yet. The manager removes it.
const taintUninitialized = "node.cloudprovider.kubernetes.io/uninitialized"

// lasting returns the taints that the Node keeps while they are configured. It leaves out taints
// that are only set when the Node is created.
func lasting(taints []corev1.Taint) []corev1.Taint {
	return slices.DeleteFunc(slices.Clone(taints), func(t corev1.Taint) bool {
		return Passing(t.Key) || t.Key == taintUninitialized
	})
}

// ReconcileTaints sets the taints of desired on node. node is the result of NewNode, Adopt,
// TakeOver or Replace for stored, which is nil for a new Node. It removes taints that hostler set
// earlier and that are no longer configured, and keeps all others. Only a TaintReconciler calls it;
// on other control planes a node may not change its taints.
func ReconcileTaints(node, stored, desired *corev1.Node) error {
	wanted := lasting(desired.Spec.Taints)
	if stored != nil {
		before := ownedOn(stored).Taints
		node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, func(t corev1.Taint) bool {
			return slices.Contains(before, taintKey(t)) && !slices.ContainsFunc(wanted, func(w corev1.Taint) bool { return t.MatchTaint(&w) })
		})
	}
	now := ownedOn(node)
	for _, w := range wanted {
		now.Taints = append(now.Taints, taintKey(w))
		switch i := slices.IndexFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&w) }); {
		case i < 0:
			node.Spec.Taints = append(node.Spec.Taints, w)
		case node.Spec.Taints[i].Value != w.Value:
			node.Spec.Taints[i] = w
		}
	}
	slices.Sort(now.Taints)
	now.Taints = slices.Compact(now.Taints)
	return now.note(node)
}

// taintKey identifies a taint: a Node has at most one taint of each key and effect.
func taintKey(t corev1.Taint) string { return fmt.Sprintf("%s:%s", t.Key, t.Effect) }

// MissingTaints returns the wanted taints that the stored Node lacks. Without a TaintReconciler, a
// node cannot add them after its creation.
func MissingTaints(stored *corev1.Node, wanted []corev1.Taint) []corev1.Taint {
	var missing []corev1.Taint
	for _, w := range wanted {
		same := func(t corev1.Taint) bool { return t.MatchTaint(&w) && t.Value == w.Value }
		if !slices.ContainsFunc(stored.Spec.Taints, same) {
			missing = append(missing, w)
		}
	}
	return missing
}

// TaintDrift names the taints, such as "taint example.com/gpu=true:NoSchedule", that this machine has
// set and that differ on the stored Node. With a TaintReconciler, another registration fixes them.
func TaintDrift(stored, desired *corev1.Node) []string {
	var drifted []string
	for _, t := range MissingTaints(stored, lasting(desired.Spec.Taints)) {
		drifted = append(drifted, "taint "+t.ToString())
	}
	return drifted
}

// TaintCordon adds the taint of cordoned Nodes, with that time, or removes it if the Node is not
// cordoned. It is for control planes without Kubernetes' node lifecycle controller.
func TaintCordon(node *corev1.Node, now time.Time) {
	ours := func(t corev1.Taint) bool {
		return t.Key == corev1.TaintNodeUnschedulable && t.Effect == corev1.TaintEffectNoSchedule
	}
	switch has := slices.ContainsFunc(node.Spec.Taints, ours); {
	case node.Spec.Unschedulable && !has:
		added := metav1.NewTime(now.Truncate(time.Second))
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule, TimeAdded: &added})
	case !node.Spec.Unschedulable && has:
		node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, ours)
	}
}

// ownedOn returns the recorded keys and taints that hostler set on a Node. An invalid record counts
// as empty, so the keys it listed stay on the Node.
func ownedOn(node *corev1.Node) owned {
	var list owned
	if json.Unmarshal([]byte(node.Annotations[AnnotationOwned]), &list) != nil {
		return owned{}
	}
	return list
}

// note writes the list into an annotation of the Node.
func (o owned) note(node *corev1.Node) error {
	list, err := json.Marshal(o)
	if err != nil {
		return fmt.Errorf("node %q: list of owned keys: %w", node.Name, err)
	}
	if node.Annotations == nil {
		node.Annotations = map[string]string{}
	}
	node.Annotations[AnnotationOwned] = string(list)
	return nil
}
