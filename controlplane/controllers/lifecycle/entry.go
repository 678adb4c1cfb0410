package lifecycle

import (
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane"
)

// LabelExclude leaves a Node out when the state of its zone is computed.
const LabelExclude = "node.kubernetes.io/exclude-disruption"

// same reports whether two entries lead to the same decision.
func (n nodeEntry) same(other nodeEntry) bool {
	n.host.Version = other.host.Version
	return reflect.DeepEqual(n.host, other.host)
}

// entryOf returns the entry of a Node.
func entryOf(node *corev1.Node, zoneLabels []string) nodeEntry {
	n := nodeEntry{
		host: Host{
			Name: node.Name, UID: node.UID, Version: node.ResourceVersion,
			Unschedulable: node.Spec.Unschedulable, Taints: slices.Clone(node.Spec.Taints),
		},
	}
	n.host.Zone = ZoneOf(node.Labels, zoneLabels)
	_, n.host.Excluded = node.Labels[LabelExclude]
	if t, err := time.Parse(time.RFC3339Nano, node.Annotations[AnnotationTainted]); err == nil {
		n.host.Tainted = t
	}
	for _, c := range slices.Backward(node.Status.Conditions) { // the first of a type counts, as in Kubernetes
		switch c.Type {
		case corev1.NodeReady:
			n.host.Conditions.Ready, n.host.ReadySince, n.heartbeat = statusOf(c), c.LastTransitionTime.Time, controlplane.JSONTime(c.LastHeartbeatTime.Time)
		case corev1.NodeMemoryPressure:
			n.host.Conditions.MemoryPressure = statusOf(c)
		case corev1.NodeDiskPressure:
			n.host.Conditions.DiskPressure = statusOf(c)
		case corev1.NodePIDPressure:
			n.host.Conditions.PIDPressure = statusOf(c)
		case corev1.NodeNetworkUnavailable:
			n.host.Conditions.NetworkUnavailable = statusOf(c)
		}
	}
	return n
}

// statusOf returns the status of a condition; empty if it is another text, which a host may have written.
func statusOf(c corev1.NodeCondition) corev1.ConditionStatus {
	switch c.Status {
	case corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown:
		return c.Status
	}
	return ""
}
