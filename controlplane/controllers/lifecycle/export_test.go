package lifecycle

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// HostOf returns the facts that the cache has of a Node that counts as dead at that time.
func HostOf(node *corev1.Node, deadAt time.Time) Host {
	h := entryOf(node, DefaultZoneLabels()).host
	h.DeadAt = deadAt
	return h
}
