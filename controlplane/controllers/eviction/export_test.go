package eviction

import corev1 "k8s.io/api/core/v1"

// HostOf returns the facts about a Node, after those that are known of it. listing reports that the Node is part of a
// list, not a change.
func HostOf(before Host, node *corev1.Node, listing bool) Host {
	h, _ := hostOf(before, node, listing)
	return h
}
