package eviction

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// HostOf returns the facts about a Node, after those that are known of it, and whether they may lead to another
// decision. listing reports that the Node is part of a list, not a change.
func HostOf(before Host, node *corev1.Node, listing bool) (Host, bool) {
	return hostOf(before, node, listing)
}

// Target marks a pod as about to be removed.
func Target(pod *corev1.Pod, now metav1.Time) { target(pod, now, false) }
