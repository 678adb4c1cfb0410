package controlplane

import corev1 "k8s.io/api/core/v1"

// ConditionOf returns a condition of a Node; nil if there is none. If there are several of one
// type, it returns the first, as Kubernetes does. The caller must not change it.
func ConditionOf(node *corev1.Node, kind corev1.NodeConditionType) *corev1.NodeCondition {
	for i := range node.Status.Conditions {
		if node.Status.Conditions[i].Type == kind {
			return &node.Status.Conditions[i]
		}
	}
	return nil
}
