package controlplane

import (
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// LeaseNamespace is where the Leases of Nodes are kept.
const LeaseNamespace = corev1.NamespaceNodeLease

// NewLease returns a Lease for the Node of that name, held by this machine and not renewed yet.
// duration is a whole number of seconds.
func NewLease(nodeName string, holder Identity, duration time.Duration) (*coordinationv1.Lease, error) {
	if duration < time.Second || duration%time.Second != 0 {
		return nil, fmt.Errorf("lease of node %q: duration %v is not a whole number of seconds, at least 1", nodeName, duration)
	}
	seconds := int32(duration / time.Second)
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: LeaseNamespace, Name: nodeName},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &nodeName, LeaseDurationSeconds: &seconds},
	}
	holder.mark(&lease.ObjectMeta)
	return lease, nil
}

// Renew returns prev with renewTime now. If that is not later than its last renewTime, Renew adds one
// microsecond to the last one: watchers such as the node lifecycle controller do not accept a
// renewTime that decreases (kubernetes/kubernetes#113081).
func Renew(prev *coordinationv1.Lease, now time.Time) *coordinationv1.Lease {
	lease := prev.DeepCopy()
	renewed := now.Truncate(time.Microsecond)
	if last := prev.Spec.RenewTime; last != nil && !renewed.After(last.Time) {
		renewed = last.Truncate(time.Microsecond).Add(time.Microsecond)
	}
	lease.Spec.RenewTime = &metav1.MicroTime{Time: renewed}
	return lease
}

// SetOwner makes the Node with that name and UID the only owning Node of the Lease, so that the
// control plane deletes the Lease with it. Without a UID it does nothing.
func SetOwner(lease *coordinationv1.Lease, nodeName string, uid types.UID) {
	if uid == "" {
		return
	}
	owner := metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: nodeName, UID: uid}
	kept := []metav1.OwnerReference{owner}
	for _, ref := range lease.OwnerReferences {
		if ref.Kind != owner.Kind || ref.APIVersion != owner.APIVersion {
			kept = append(kept, ref)
		}
	}
	lease.OwnerReferences = kept
}
