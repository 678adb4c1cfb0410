package controlplane

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// ownDomain is the prefix of conditions that belong to hostler, whichever client wrote them.
const ownDomain = "hostler.io/"

// Written names what a client has written into a Node's status. Everything else belongs to other
// clients. It is a value; its methods do not change it.
type Written struct {
	conditions map[corev1.NodeConditionType]bool
	resources  map[corev1.ResourceName]bool
}

// With returns Written extended by a stored status.
func (w Written) With(status corev1.NodeStatus) Written {
	next := Written{maps.Clone(w.conditions), maps.Clone(w.resources)}
	if next.conditions == nil {
		next = Written{map[corev1.NodeConditionType]bool{}, map[corev1.ResourceName]bool{}}
	}
	for _, condition := range status.Conditions {
		next.conditions[condition.Type] = true
	}
	for _, list := range []corev1.ResourceList{status.Capacity, status.Allocatable} {
		for name := range list {
			next.resources[name] = true
		}
	}
	return next
}

// Merge returns the status to store. It keeps from the stored status: conditions of other clients,
// their resources (with a domain in the name), and the volumes of the attach-detach controller.
func (w Written) Merge(stored, wanted corev1.NodeStatus) corev1.NodeStatus {
	status := *wanted.DeepCopy()
	status.Phase, status.VolumesAttached = stored.Phase, stored.VolumesAttached
	for _, condition := range stored.Conditions {
		ours := w.conditions[condition.Type] || strings.HasPrefix(string(condition.Type), ownDomain)
		if !ours && !slices.ContainsFunc(wanted.Conditions, func(c corev1.NodeCondition) bool { return c.Type == condition.Type }) {
			status.Conditions = append(status.Conditions, condition)
		}
	}
	status.Capacity = w.resourcesOf(stored.Capacity, status.Capacity)
	status.Allocatable = w.resourcesOf(stored.Allocatable, status.Allocatable)
	return status
}

// resourcesOf returns the wanted resources and those of other clients.
func (w Written) resourcesOf(stored, wanted corev1.ResourceList) corev1.ResourceList {
	for name, quantity := range stored {
		_, set := wanted[name]
		if set || w.resources[name] || !strings.Contains(string(name), "/") {
			continue
		}
		if wanted == nil {
			wanted = corev1.ResourceList{}
		}
		wanted[name] = quantity
	}
	return wanted
}
