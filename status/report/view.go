package report

import (
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/status"
)

// view is the state that others may read at any time, even during a report. It is safe for
// concurrent use.
type view struct {
	mu        sync.Mutex   // guards the fields below
	node      *corev1.Node // last Node built from the host, with the stored metadata and spec
	facts     status.Facts // from which node was built
	connected bool
	lastError error
	waits     string               // why nothing is written although nothing failed
	taints    []Drift              // configured taints that the stored Node lacks
	remains   []Drift              // of an earlier machine on the Node
	named     []controlplane.Clone // by the stored Node
}

// see stores the result of a check. If keepAddresses is set, the stored addresses stay.
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

// adopt stores the metadata and spec of the stored Node and, if a cloud controller manager sets
// them, its addresses. It returns the stored Node without status.
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

// contact records the control plane's last answer.
func (v *view) contact(err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.connected, v.lastError = err == nil, err
}

// failure returns why the last call of the control plane failed, or nil.
func (v *view) failure() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.lastError
}

// wait sets why nothing is written, or "". It returns the previous value.
func (v *view) wait(why string) (before string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	before, v.waits = v.waits, why
	return before
}

// waiting returns why nothing is written, or "".
func (v *view) waiting() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.waits
}

// setLackingTaints returns the previous value.
func (v *view) setLackingTaints(drift []Drift) (before []Drift) {
	v.mu.Lock()
	defer v.mu.Unlock()
	before, v.taints = v.taints, drift
	return before
}

// setRemains returns the previous value.
func (v *view) setRemains(drift []Drift) (before []Drift) {
	v.mu.Lock()
	defer v.mu.Unlock()
	before, v.remains = v.remains, drift
	return before
}

// drop forgets the state of a stored Node.
func (v *view) drop() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.waits, v.taints, v.remains, v.named = "", nil, nil, nil
}

// setClones returns the previous value.
func (v *view) setClones(named []controlplane.Clone) (before []controlplane.Clone) {
	v.mu.Lock()
	defer v.mu.Unlock()
	before, v.named = v.named, named
	return before
}

// clones returns the clones that the stored Node names.
func (v *view) clones() []controlplane.Clone {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.named)
}

// unschedulable returns the stored cordon. known is false before the first check.
func (v *view) unschedulable() (cordoned, known bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.node != nil && v.node.Spec.Unschedulable, v.node != nil
}

// Current returns the last Node, nil before the first check, the facts from which it was built, and
// the control plane's last answer.
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
