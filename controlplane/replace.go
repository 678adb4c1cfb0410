package controlplane

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Remains are what a machine left on its Node that another has now, and that is not
// hostler's to remove.
type Remains struct {
	Machine       Identity `json:"machine,omitzero"` // that had the Node
	Labels        []string `json:"labels,omitempty"` // keys, of labels that hostler did not set
	Taints        []string `json:"taints,omitempty"` // as kubectl writes them
	PodCIDRs      []string `json:"podCIDRs,omitempty"`
	ProviderID    string   `json:"providerID,omitempty"`
	Unschedulable bool     `json:"unschedulable,omitempty"` // somebody cordoned it
}

// Passing reports whether a taint of that key follows from a Node's conditions and its
// cordon: the cluster's own controller sets it and takes it away again.
func Passing(key string) bool {
	switch key {
	case corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable, corev1.TaintNodeUnschedulable, corev1.TaintNodeNetworkUnavailable,
		corev1.TaintNodeMemoryPressure, corev1.TaintNodeDiskPressure, corev1.TaintNodePIDPressure:
		return true
	default:
		return false
	}
}

// TakeOver returns what the stored Node of another machine becomes when this one,
// which wants it to be desired, takes its place without a right to delete it. What
// belongs to the other goes as far as a node may: labels and annotations that its
// hostler set, and all of its status. What remains is noted, for RemainsOn.
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

// Replace returns the Node that this machine creates in the place of another's that
// is deleted. Nothing of that one stays but its cordon: who closed it meant the host
// of that name, be it for the very time of its reinstallation.
func Replace(stored, desired *corev1.Node) (*corev1.Node, error) {
	node, err := NewNode(desired)
	if err != nil {
		return nil, err
	}
	left := Remains{Machine: IdentityOf(stored), Unschedulable: stored.Spec.Unschedulable && !desired.Spec.Unschedulable}
	node.Spec.Unschedulable = stored.Spec.Unschedulable || desired.Spec.Unschedulable
	return node, left.note(node)
}

// podCIDRs are the ranges that a Node's pods were given.
func podCIDRs(node *corev1.Node) []string {
	if len(node.Spec.PodCIDRs) > 0 || node.Spec.PodCIDR == "" {
		return slices.Clone(node.Spec.PodCIDRs)
	}
	return []string{node.Spec.PodCIDR}
}

// none reports whether nothing is left but the machine's name.
func (r Remains) none() bool { return r.nothingFixed() && !r.Unschedulable }

// nothingFixed reports whether nothing is left that only a new Node is free of.
func (r Remains) nothingFixed() bool {
	return len(r.Labels) == 0 && len(r.Taints) == 0 && len(r.PodCIDRs) == 0 && r.ProviderID == ""
}

// note puts what remains on the Node, where it outlives the agent.
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

// RemainsOn is what is still on the Node of what the machine before left there; nil
// if nothing is. What hostler has set since is this machine's.
func RemainsOn(stored *corev1.Node) *Remains {
	var left Remains
	if json.Unmarshal([]byte(stored.Annotations[AnnotationReplaced]), &left) != nil {
		return nil // there is none, or somebody has spoiled it
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

// only are those of the list that stay; nil if none does.
func only(list []string, stays func(string) bool) (kept []string) {
	for _, item := range list {
		if stays(item) {
			kept = append(kept, item)
		}
	}
	return kept
}

// Fixed names what only a new Node is free of: "labels a, b; taints c"; empty if
// nothing is.
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
