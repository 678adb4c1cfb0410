package kubernetes

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"hostler.io/hostler/controlplane"
)

// statusPatch is the strategic merge patch that gives the stored Node that
// status, if the Node is still at the version that it has here.
func statusPatch(stored *corev1.Node, status corev1.NodeStatus) ([]byte, error) {
	next := stored.DeepCopy()
	next.Status = status
	return twoWayPatch(stored, next)
}

// nodePatch is the strategic merge patch that makes the stored Node the adopted
// one in all but its status, if it is still at that version; nil if they are the
// same.
func nodePatch(stored, adopted *corev1.Node) ([]byte, error) {
	if equality.Semantic.DeepEqual(stored, adopted) {
		return nil, nil
	}
	return twoWayPatch(stored, adopted)
}

// twoWayPatch is the patch from one Node to the next, under the former's UID and
// resourceVersion.
func twoWayPatch(from, to *corev1.Node) ([]byte, error) {
	patch, err := diff(from, to)
	if err != nil {
		return nil, fmt.Errorf("make patch: %w: %w", controlplane.ErrInvalid, err)
	}
	return patch, nil
}

func diff(from, to *corev1.Node) ([]byte, error) {
	before, err := json.Marshal(from)
	if err != nil {
		return nil, err
	}
	after, err := json.Marshal(to)
	if err != nil {
		return nil, err
	}
	text, err := strategicpatch.CreateTwoWayMergePatch(before, after, corev1.Node{})
	if err != nil {
		return nil, err
	}
	patch := map[string]any{}
	if err := json.Unmarshal(text, &patch); err != nil {
		return nil, err
	}
	if !equality.Semantic.DeepEqual(from.Status.Addresses, to.Status.Addresses) {
		replaceAddresses(inner(patch, "status"), to.Status.Addresses)
	}
	metadata := inner(patch, "metadata")
	metadata["uid"], metadata["resourceVersion"] = from.UID, from.ResourceVersion
	return json.Marshal(patch)
}

// replaceAddresses has the patch replace the addresses as a whole. Addresses are
// declared to merge by their type, of which a Node may have several: merged, one
// would be lost (kubernetes/kubernetes#58445).
func replaceAddresses(status map[string]any, addresses []corev1.NodeAddress) {
	list := []any{map[string]any{"$patch": "replace"}}
	for _, address := range addresses {
		list = append(list, address)
	}
	status["addresses"] = list
	delete(status, "$setElementOrder/addresses")
}

// inner is the object below that key, which is made if there is none.
func inner(patch map[string]any, key string) map[string]any {
	object, ok := patch[key].(map[string]any)
	if !ok {
		object = map[string]any{}
		patch[key] = object
	}
	return object
}
