package controlplane

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// taintUninitialized is what a new Node waits with for a cloud controller manager,
// which takes it away for good.
const taintUninitialized = "node.cloudprovider.kubernetes.io/uninitialized"

// lasting are those of the taints that a Node is to have for as long as they are
// configured, and not at its creation alone.
func lasting(taints []corev1.Taint) []corev1.Taint {
	return slices.DeleteFunc(slices.Clone(taints), func(t corev1.Taint) bool {
		return Passing(t.Key) || t.Key == taintUninitialized
	})
}

// ReconcileTaints brings the taints of desired into node, which NewNode, Adopt,
// TakeOver or Replace have made of the stored one, nil where it is new. It is for a
// TaintReconciler; elsewhere a node may not change its taints. Those of desired are
// set, those that hostler set earlier and wants no longer are removed, and all
// others are left alone.
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

// taintKey is what a Node has one taint of.
func taintKey(t corev1.Taint) string { return fmt.Sprintf("%s:%s", t.Key, t.Effect) }

// MissingTaints are those of the wanted taints that the stored Node lacks. A node
// may not give itself any after its creation, but where a TaintReconciler is.
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

// TaintDrift names the taints, such as "taint example.com/gpu=true:NoSchedule", that
// this machine, which wants the Node to be desired, has set and that are not so on the
// stored one. To register again fixes them where a TaintReconciler is.
func TaintDrift(stored, desired *corev1.Node) []string {
	var drifted []string
	for _, t := range MissingTaints(stored, lasting(desired.Spec.Taints)) {
		drifted = append(drifted, "taint "+t.ToString())
	}
	return drifted
}

// TaintCordon gives a Node that is cordoned, by that time, the taint that Kubernetes'
// node lifecycle controller gives it, and takes it from one that is not: for control
// planes that have no such controller.
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

// ownedOn is what is noted on a Node of what hostler set there. A list that someone
// has spoiled is as good as none: what it named stays.
func ownedOn(node *corev1.Node) owned {
	var list owned
	if json.Unmarshal([]byte(node.Annotations[AnnotationOwned]), &list) != nil {
		return owned{}
	}
	return list
}

// note puts the list on the Node.
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
