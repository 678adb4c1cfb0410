package controlplane

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Remains is what a previous machine left on the Node and what hostler may not remove.
type Remains struct {
	Machine       Identity `json:"machine,omitzero"` // the previous machine
	Labels        []string `json:"labels,omitempty"` // keys, of labels that hostler did not set
	Taints        []string `json:"taints,omitempty"` // as kubectl writes them
	PodCIDRs      []string `json:"podCIDRs,omitempty"`
	ProviderID    string   `json:"providerID,omitempty"`
	Unschedulable bool     `json:"unschedulable,omitempty"` // somebody cordoned the Node
}

// Passing reports whether the cluster itself sets and removes taints of that key, because of
// conditions or the cordon.
func Passing(key string) bool {
	switch key {
	case corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable, corev1.TaintNodeUnschedulable, corev1.TaintNodeNetworkUnavailable,
		corev1.TaintNodeMemoryPressure, corev1.TaintNodeDiskPressure, corev1.TaintNodePIDPressure:
		return true
	default:
		return false
	}
}

// TakeOver returns the Node to store when this machine takes over another machine's Node without
// deleting it. It removes what a node may remove: the labels and annotations that the other hostler
// set, and the status. What stays is recorded for RemainsOn.
func TakeOver(stored, desired *corev1.Node) (*corev1.Node, error) {
	node, err := Adopt(stored, desired)
	if err != nil {
		return nil, err
	}
	desired.Status.DeepCopyInto(&node.Status)
	left := Remains{
		Machine: IdentityOf(stored),
		Labels: only(slices.Sorted(maps.Keys(node.Labels)), func(key string) bool {
			_, ours := desired.Labels[key]
			return !ours
		}),
		PodCIDRs:      podCIDRs(stored),
		Unschedulable: stored.Spec.Unschedulable && !desired.Spec.Unschedulable,
	}
	for _, t := range stored.Spec.Taints {
		wanted := slices.ContainsFunc(desired.Spec.Taints, func(w corev1.Taint) bool { return t.MatchTaint(&w) && t.Value == w.Value })
		if !wanted && !Passing(t.Key) {
			left.Taints = append(left.Taints, t.ToString())
		}
	}
	if stored.Spec.ProviderID != desired.Spec.ProviderID {
		left.ProviderID = stored.Spec.ProviderID
	}
	return node, left.note(node)
}

// Replace returns the Node that this machine creates after it has deleted another machine's Node of
// that name. Only the cordon of a person is kept: it meant the host of that name, perhaps for its
// reinstallation.
func Replace(stored, desired *corev1.Node) (*corev1.Node, error) {
	node, err := NewNode(desired)
	if err != nil {
		return nil, err
	}
	cordoned := stored.Spec.Unschedulable && !OwnCordon(stored)
	left := Remains{Machine: IdentityOf(stored), Unschedulable: cordoned && !desired.Spec.Unschedulable}
	node.Spec.Unschedulable = cordoned || desired.Spec.Unschedulable
	return node, left.note(node)
}

// podCIDRs returns the pod address ranges of a Node.
func podCIDRs(node *corev1.Node) []string {
	if len(node.Spec.PodCIDRs) > 0 || node.Spec.PodCIDR == "" {
		return slices.Clone(node.Spec.PodCIDRs)
	}
	return []string{node.Spec.PodCIDR}
}

// none reports whether only the name of the machine is left.
func (r Remains) none() bool { return r.nothingFixed() && !r.Unschedulable }

// nothingFixed reports whether everything that is left can be removed without creating a new Node.
func (r Remains) nothingFixed() bool {
	return len(r.Labels) == 0 && len(r.Taints) == 0 && len(r.PodCIDRs) == 0 && r.ProviderID == ""
}

// note writes the remains into an annotation of the Node, so that they survive a restart of the
// agent.
func (r Remains) note(node *corev1.Node) error {
	delete(node.Annotations, AnnotationReplaced)
	if r.none() {
		return nil
	}
	text, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("node %q: annotation of remaining settings: %w", node.Name, err)
	}
	node.Annotations[AnnotationReplaced] = string(text)
	return nil
}

// RemainsOn returns what is still on the Node from the previous machine; nil if nothing is. Keys
// that hostler has set since then belong to this machine.
func RemainsOn(stored *corev1.Node) *Remains {
	var left Remains
	if json.Unmarshal([]byte(stored.Annotations[AnnotationReplaced]), &left) != nil {
		return nil // there is no annotation, or another client has made it invalid
	}
	ours := ownedOn(stored)
	left.Labels = only(left.Labels, func(key string) bool {
		_, found := stored.Labels[key]
		return found && !slices.Contains(ours.Labels, key)
	})
	left.Taints = only(left.Taints, func(taint string) bool {
		return slices.ContainsFunc(stored.Spec.Taints, func(t corev1.Taint) bool {
			return t.ToString() == taint && !slices.Contains(ours.Taints, taintKey(t))
		})
	})
	left.PodCIDRs = only(left.PodCIDRs, func(cidr string) bool { return slices.Contains(podCIDRs(stored), cidr) })
	if left.ProviderID != stored.Spec.ProviderID {
		left.ProviderID = ""
	}
	left.Unschedulable = left.Unschedulable && stored.Spec.Unschedulable
	if left.none() {
		return nil
	}
	return &left
}

// only returns the elements of the list for which stays returns true; nil if there are none.
func only(list []string, stays func(string) bool) (kept []string) {
	for _, item := range list {
		if stays(item) {
			kept = append(kept, item)
		}
	}
	return kept
}

// Fixed names what only a new Node removes, such as "labels a, b; taints c"; empty if there is
// nothing.
func (r *Remains) Fixed() string {
	var parts []string
	add := func(what string, list ...string) {
		if len(list) > 0 {
			parts = append(parts, what+" "+strings.Join(list, ", "))
		}
	}
	add("labels", r.Labels...)
	add("taints", r.Taints...)
	add("podCIDRs", r.PodCIDRs...)
	if r.ProviderID != "" {
		add("providerID", r.ProviderID)
	}
	return strings.Join(parts, "; ")
}
