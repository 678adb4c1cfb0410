package eviction

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane/store"
)

// take takes in a Node, with its NoExecute taints and since when each counts.
func take(before Host, o store.Object, listing bool) (now Host, news bool) {
	node := o.(*corev1.Node)
	now = Host{Name: node.Name, UID: node.UID}
	for _, t := range node.Spec.Taints {
		if t.Effect == corev1.TaintEffectNoExecute {
			now.Taints = append(now.Taints, Taint{*t.DeepCopy(), since(before.Taints, t, listing)})
		}
	}
	return now, len(before.Taints)+len(now.Taints) > 0
}

// since is from when a taint counts. Clocks differ and are set, so one that is seen to appear counts from
// then, and one that was there when Nodes were listed from its timeAdded, as far as that has passed. One
// that replaces another has its time, and counts from when that did.
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
