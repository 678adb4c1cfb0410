package kubernetes

import (
	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane"
)

// StatusPatch returns the patch that sets wanted in stored, and the resulting status. before is
// what the client has written earlier.
func StatusPatch(stored *corev1.Node, before, wanted corev1.NodeStatus) (patch []byte, merged corev1.NodeStatus, err error) {
	merged = controlplane.Written{}.With(before).Merge(stored.Status, wanted)
	patch, err = statusPatch(stored, merged)
	return patch, merged, err
}
