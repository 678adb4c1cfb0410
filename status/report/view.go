package report

import (
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/status"
)

// view is what others may read at any time, while a report is in progress too. It is safe for
// concurrent use.
type view struct {
	mu        sync.Mutex   // guards what follows
	node      *corev1.Node // as last seen from the host, with the stored metadata and spec
	facts     status.Facts // that it was made from
	connected bool
	lastError error
	waits     string               // why nothing is written although nothing failed
	taints    []Drift              // configured taints that the stored Node lacks
	remains   []Drift              // of a machine that had the Node before
	named     []controlplane.Clone // by the stored Node
}

// see takes in a check of the host. The addresses stay those that are stored if
// keepAddresses is set.
func (v *view) see(node *corev1.Node, facts status.Facts, keepAddresses bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	seen := node.DeepCopy()
	if v.node != nil {
		seen.ObjectMeta, seen.Spec = v.node.ObjectMeta, v.node.Spec
		if keepAddresses {
			seen.Status.Addresses = v.node.Status.Addresses
		}
	}
	v.node, v.facts = seen, facts
}

// adopt takes in what is stored, also its addresses if a cloud controller manager sets them,
// and returns it without a status.
func (v *view) adopt(stored *corev1.Node, externalAddresses bool) *corev1.Node {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.node.ObjectMeta, v.node.Spec = stored.ObjectMeta, stored.Spec
	v.node.ManagedFields = nil
	if externalAddresses && len(stored.Status.Addresses) > 0 {
		v.node.Status.Addresses = stored.Status.Addresses
	}
	return &corev1.Node{ObjectMeta: v.node.ObjectMeta, Spec: stored.Spec}
}

func (v *view) setTaints(taints []corev1.Taint) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.node.Spec.Taints = taints
}

func (v *view) setConditions(conditions []corev1.NodeCondition) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.node.Status.Conditions = slices.Clone(conditions)
}

// contact notes how the control plane answered.
func (v *view) contact(err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.connected, v.lastError = err == nil, err
}

// failed reports whether the control plane did not answer last time.
func (v *view) failed() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.lastError != nil
}

// wait notes why nothing is written; empty if it is. It returns what was noted before.
func (v *view) wait(why string) (before string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	before, v.waits = v.waits, why
	return before
}

// waiting is why nothing is written; empty if it is.
func (v *view) waiting() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.waits
}

// setLackingTaints returns what was noted before.
func (v *view) setLackingTaints(drift []Drift) (before []Drift) {
	v.mu.Lock()
	defer v.mu.Unlock()
	before, v.taints = v.taints, drift
	return before
}

// setRemains returns what was noted before.
func (v *view) setRemains(drift []Drift) (before []Drift) {
	v.mu.Lock()
	defer v.mu.Unlock()
	before, v.remains = v.remains, drift
	return before
}

// drop forgets what concerns a stored Node.
func (v *view) drop() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.waits, v.taints, v.remains, v.named = "", nil, nil, nil
}

// setClones returns what was noted before.
func (v *view) setClones(named []controlplane.Clone) (before []controlplane.Clone) {
	v.mu.Lock()
	defer v.mu.Unlock()
	before, v.named = v.named, named
	return before
}

// clones are those that the stored Node names.
func (v *view) clones() []controlplane.Clone {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.named)
}

// unschedulable is the stored cordon, and whether any check was taken yet.
func (v *view) unschedulable() (cordoned, known bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.node != nil && v.node.Spec.Unschedulable, v.node != nil
}

// Current returns the Node as last seen, nil before the first check, the facts that it was
// made from, and how the control plane answered last.
func (v *view) Current() (node *corev1.Node, facts status.Facts, connected bool, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.node.DeepCopy(), v.facts, v.connected, v.lastError
}

func (v *view) nodeState() NodeState {
	v.mu.Lock()
	defer v.mu.Unlock()
	return NodeState{Waits: v.waits, Drift: slices.Concat(v.taints, v.remains)}
}
