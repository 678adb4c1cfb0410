package eviction

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/store"
)

// hostOf returns the Host of a Node, with its NoExecute taints and when each starts to count.
func hostOf(before Host, o store.Object, listing bool) (now Host, news bool) {
	node := o.(*corev1.Node)
	now = Host{Name: node.Name, UID: node.UID, Unknown: unknown(node)}
	for _, t := range taintsOf(node) {
		now.Taints = append(now.Taints, Taint{Taint: *t.DeepCopy(), Since: since(before.Taints, t, listing)})
	}
	return now, len(before.Taints)+len(now.Taints) > 0
}

// unknown reports whether a Node's condition Ready is Unknown.
func unknown(node *corev1.Node) bool {
	ready := controlplane.ConditionOf(node, corev1.NodeReady)
	return ready != nil && ready.Status == corev1.ConditionUnknown
}

// causeOf returns the key of the taint for the present cause: controller node-lifecycle replaces one
// outage taint by the other.
func causeOf(t corev1.Taint, unknown bool) string {
	if unknown {
		return corev1.TaintNodeUnreachable
	}
	return t.Key
}

// taintsOf returns the NoExecute taints of a Node, without those that are about to be removed because
// the Node is ready again.
func taintsOf(node *corev1.Node) []corev1.Taint {
	ready := controlplane.ConditionOf(node, corev1.NodeReady)
	again := ready != nil && ready.Status == corev1.ConditionTrue
	return slices.DeleteFunc(slices.Clone(node.Spec.Taints), func(t corev1.Taint) bool {
		return t.Effect != corev1.TaintEffectNoExecute || again && outage(t)
	})
}

// since returns when a taint starts to count, by this server's clock. The clock of the writer may
// be wrong, so a taint that appears after the list counts from its appearance. A taint that was
// already in the list counts from its timeAdded, unless that is in the future. A taint that
// replaces another one keeps its timeAdded, and counts from when the other one did.
func since(before []Taint, t corev1.Taint, listing bool) time.Time {
	for _, known := range before {
		same := known.Key == t.Key && known.Value == t.Value
		if t.TimeAdded == nil && same && known.TimeAdded == nil || t.TimeAdded != nil && t.TimeAdded.Equal(known.TimeAdded) {
			return known.Since
		}
	}
	now := time.Now()
	if !listing || t.TimeAdded == nil {
		return now
	}
	return now.Add(-max(now.Sub(t.TimeAdded.Time), 0))
}
