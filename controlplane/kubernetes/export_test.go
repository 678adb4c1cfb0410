package kubernetes

import (
	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane"
)

// StatusPatch is the patch that brings wanted into stored, of which a client has
// written that much before, and what the status comes to.
func StatusPatch(stored *corev1.Node, before, wanted corev1.NodeStatus) (patch []byte, merged corev1.NodeStatus, err error) {
	merged = controlplane.Written{}.With(before).Merge(stored.Status, wanted)
	patch, err = statusPatch(stored, merged)
	return patch, merged, err
}
