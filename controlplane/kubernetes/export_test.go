package kubernetes

import (
	"time"

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

// CountsAsAbsent reports whether an owner that was absent some time ago counts as absent without another read.
func CountsAsAbsent(ago time.Duration) bool {
	s := readCache{others: map[reference]time.Time{}}
	owner := reference{kind: "nodes", name: "n", uid: "u"}
	s.record(owner, time.Now().Add(-ago))
	return s.recently(owner)
}

// WithPluginTime sets another pluginTime.
func WithPluginTime(o Options, limit time.Duration) Options {
	o.pluginTime = limit
	return o
}
