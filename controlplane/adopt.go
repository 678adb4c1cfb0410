package controlplane

import (
	"maps"
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NewNode returns the Node as a client creates it: desired with its status and
// taints, and with what lets hostler know it again. It is the stored object's
// beginning; UID, resourceVersion and creation time are the control plane's.
func NewNode(desired *corev1.Node) (*corev1.Node, error) {
	node := desired.DeepCopy()
	node.ResourceVersion, node.UID = "", ""
	if err := reconcile(node, desired, owned{}); err != nil {
		return nil, err
	}
	return node, nil
}

// Disputed reports whether the stored Node may be another machine's than the one that
// wants it to be desired, so that it takes the Lease to tell.
func Disputed(stored, desired *corev1.Node) bool {
	ours := IdentityOf(desired)
	return identityIn(stored.Annotations).Differs(ours) || reportedBy(stored).Differs(ours)
}

// Claim reports whether the stored Node is another machine's that yields to this
// one, which wants it to be desired: then comes TakeOver or Replace, else Adopt.
//
// storedLease is the Node's Lease, nil where there is none or the control plane
// itself knows that it is dead. *IdentityError where the other machine is not known
// to be dead, unless takeover is requested: without a Lease it is, except one that has
// taken the Node from this process.
func Claim(stored, desired *corev1.Node, storedLease *coordinationv1.Lease, o RegisterOptions) (others bool, err error) {
	theirs, ours := holderOf(stored, storedLease), IdentityOf(desired)
	if !theirs.Differs(ours) {
		return false, nil
	}
	switch {
	case o.Takeover, storedLease == nil && !o.Lost, storedLease != nil && holds(ours, storedLease):
		return true, nil
	case storedLease == nil:
		return true, &IdentityError{Name: stored.Name, Theirs: theirs, Ours: ours}
	}
	if observed := o.Watch.See(storedLease); !observed.Dead {
		return true, refusal(stored.Name, theirs, ours, storedLease, observed)
	}
	return true, nil
}

// Adopt returns what the stored Node, which is this machine's, becomes when this
// machine, which wants it to be desired, registers. It decides alone; the client
// stores the result if it differs, under the stored resourceVersion.
//
// Labels and annotations of desired are set, those that hostler set earlier and
// wants no longer are removed, and all others are left alone. The provider ID
// is filled in where there is none. Taints, spec.unschedulable and the rest of
// the spec stay as they are stored, since a node may not change its taints
// (NodeRestriction; where it may, ReconcileTaints follows) and whoever cordoned it
// meant it. The status stays as well.
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

// holds reports whether the Lease is known to be this machine's, which happens
// while its Node still names the machine that had the name before.
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

// reconcile brings the labels and annotations of desired into node, of which
// hostler set before earlier, and notes them and the machine.
func reconcile(node, desired *corev1.Node, before owned) error {
	now := ownedBy(desired)
	node.Labels = replace(node.Labels, desired.Labels, before.Labels, now.Labels)
	node.Annotations = replace(node.Annotations, desired.Annotations, before.Annotations, now.Annotations)
	IdentityOf(desired).mark(&node.ObjectMeta)
	return now.note(node)
}

// ownedBy are the keys that hostler sets on a Node that it wants to be desired.
func ownedBy(desired *corev1.Node) owned {
	now := owned{Labels: slices.Sorted(maps.Keys(desired.Labels))}
	for _, key := range slices.Sorted(maps.Keys(desired.Annotations)) {
		if !internal(key) {
			now.Annotations = append(now.Annotations, key)
		}
	}
	return now
}

// Drift names the labels and annotations, such as "label example.com/rack", that
// this machine, which wants the Node to be desired, has set and that are not so on
// the stored one. To register again fixes them. Whose the Node is, where that
// is told, is no drift: see CheckOwner.
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

// internal reports whether the annotation is kept by this package itself.
func internal(key string) bool {
	return key == AnnotationOwned || key == AnnotationMachineID || key == AnnotationSystemUUID || key == AnnotationReplaced
}

// replace sets the wanted keys, and deletes those that were set before and are
// not wanted now.
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
