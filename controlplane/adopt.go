package controlplane

import (
	"maps"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NewNode returns the Node that a client creates: desired, with its status, its taints and hostler's
// annotations. The control plane adds UID, resourceVersion and creation time.
func NewNode(desired *corev1.Node) (*corev1.Node, error) {
	node := desired.DeepCopy()
	node.ResourceVersion, node.UID = "", ""
	if err := reconcile(node, desired, owned{}); err != nil {
		return nil, err
	}
	return node, nil
}

// Disputed reports whether the stored Node may belong to another machine. Then the caller reads the
// Lease, too, before it calls Claim. desired is the Node that this machine wants.
func Disputed(stored, desired *corev1.Node) bool {
	ours := IdentityOf(desired)
	return identityIn(stored.Annotations).Differs(ours) || reportedBy(stored).Differs(ours)
}

// Claim reports whether the stored Node belongs to another machine that yields to this one. If so,
// TakeOver or Replace follows, otherwise Adopt.
//
// storedLease is the Node's Lease; nil if there is none. Claim returns an *IdentityError if the other
// machine may be alive and takeover is false. A machine without a Lease counts as dead if its Node got no
// heartbeat for the duration of this host's Lease: a living machine also creates its Lease again.
func Claim(stored, desired *corev1.Node, storedLease *coordinationv1.Lease, o RegisterOptions) (others bool, err error) {
	o.Watch.setLost(o.Lost)
	return claim(stored, desired, storedLease, o)
}

// claim is Claim for a loop that does not know whether the Node was lost, and sets o.Lost as the last Claim.
func claim(stored, desired *corev1.Node, storedLease *coordinationv1.Lease, o RegisterOptions) (others bool, err error) {
	leaseless := storedLease == nil
	if leaseless {
		storedLease = standIn(stored, o)
	}
	theirs, ours := holderOf(stored, storedLease), IdentityOf(desired)
	if !theirs.Differs(ours) {
		return false, nil
	}
	if o.Takeover || holds(ours, storedLease) {
		return true, nil
	}
	if observed := o.Watch.See(storedLease); !observed.Dead {
		identity := refusal(stored.Name, theirs, ours, storedLease, observed)
		if leaseless {
			identity.LeaseRenewed = time.Time{}
		}
		return true, identity
	}
	return true, nil
}

// leaselessFor is how long a Node without a Lease is watched whose machine took it from this process.
// That machine may have no Lease. By default, hostler writes the Node every 5 minutes even without a
// change. Without a limit, no machine could get the Node back.
const leaselessFor = 15 * time.Minute

// standInOf returns the name of the Lease that replaces a missing one. It is watched beside that one.
func standInOf(node string) string { return "node/" + node }

// standIn returns a Lease that replaces a missing one: each heartbeat of the Node counts as a renewal.
func standIn(node *corev1.Node, o RegisterOptions) *coordinationv1.Lease {
	lease := &coordinationv1.Lease{}
	lease.Name, lease.UID = standInOf(node.Name), node.UID
	lease.Spec.RenewTime = &metav1.MicroTime{}
	if ready := ConditionOf(node, corev1.NodeReady); ready != nil {
		lease.Spec.RenewTime.Time = ready.LastHeartbeatTime.Time
	}
	duration := o.Watch.missing()
	if requested, err := usable(node.Annotations[AnnotationLeaseDuration], duration, RequestedForNode); err == nil {
		duration = requested
	}
	if o.Lost {
		duration = leaselessFor
	}
	lease.Spec.LeaseDurationSeconds = new(int32(duration / time.Second))
	return lease
}

// Adopt returns what the client stores when this machine registers on its own Node. The client writes
// the result only if it differs, and under the stored resourceVersion.
//
// Labels and annotations of desired are set. Keys that hostler set earlier and that are no longer
// configured are removed. All other keys are kept, and so are the taints, the cordon and the
// status. A node may not change its taints (NodeRestriction); on a control plane that allows it,
// call ReconcileTaints next. The provider ID is set if it is empty.
func Adopt(stored, desired *corev1.Node) (*corev1.Node, error) {
	node := stored.DeepCopy()
	if err := reconcile(node, desired, ownedOn(stored)); err != nil {
		return nil, err
	}
	if node.Spec.ProviderID == "" {
		node.Spec.ProviderID = desired.Spec.ProviderID
	}
	return node, nil
}

// holds reports whether this machine holds the Lease. That is possible while its Node still names the
// previous machine.
func holds(ours Identity, lease *coordinationv1.Lease) bool {
	holder := identityIn(lease.Annotations)
	return holder != (Identity{}) && !holder.Differs(ours)
}

// owned are the keys that hostler set on a Node, sorted.
type owned struct {
	Labels      []string `json:"labels,omitempty"`
	Annotations []string `json:"annotations,omitempty"`
	Taints      []string `json:"taints,omitempty"` // KEY:EFFECT, where they are reconciled
}

// reconcile sets the labels and annotations of desired on node. It removes the keys of before that
// are no longer configured, and records the keys and the machine.
func reconcile(node, desired *corev1.Node, before owned) error {
	now := ownedBy(desired)
	node.Labels = replace(node.Labels, desired.Labels, before.Labels, now.Labels)
	node.Annotations = replace(node.Annotations, desired.Annotations, before.Annotations, now.Annotations)
	IdentityOf(desired).mark(&node.ObjectMeta)
	return now.note(node)
}

// ownedBy returns the keys that hostler sets on desired.
func ownedBy(desired *corev1.Node) owned {
	now := owned{Labels: slices.Sorted(maps.Keys(desired.Labels))}
	for _, key := range slices.Sorted(maps.Keys(desired.Annotations)) {
		if !internal(key) {
			now.Annotations = append(now.Annotations, key)
		}
	}
	return now
}

// Drift names the labels and annotations, such as "label example.com/rack", that this machine has set
// and that differ on the stored Node. Another registration fixes them. It does not report another
// owner of the Node: see CheckOwner.
func Drift(stored, desired *corev1.Node) []string {
	var drifted []string
	keys := ownedBy(desired)
	for _, key := range keys.Labels {
		if value, found := stored.Labels[key]; !found || value != desired.Labels[key] {
			drifted = append(drifted, "label "+key)
		}
	}
	for _, key := range keys.Annotations {
		if value, found := stored.Annotations[key]; !found || value != desired.Annotations[key] {
			drifted = append(drifted, "annotation "+key)
		}
	}
	marked := &metav1.ObjectMeta{}
	IdentityOf(desired).mark(marked)
	for _, key := range append(slices.Sorted(maps.Keys(marked.Annotations)), AnnotationOwned) {
		if _, found := stored.Annotations[key]; !found {
			drifted = append(drifted, "annotation "+key)
		}
	}
	return drifted
}

// internal reports whether this package itself writes the annotation.
func internal(key string) bool {
	return key == AnnotationOwned || key == AnnotationMachineID || key == AnnotationSystemUUID || key == AnnotationReplaced
}

// replace sets the wanted keys, and deletes keys that were set before and are not wanted now.
func replace(into, from map[string]string, before, now []string) map[string]string {
	for _, key := range before {
		if !internal(key) {
			delete(into, key)
		}
	}
	for _, key := range now {
		if into == nil {
			into = map[string]string{}
		}
		into[key] = from[key]
	}
	return into
}
