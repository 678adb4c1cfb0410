package kubernetes

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/store"
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
		return nil, err
	}
	return under(from, patch)
}

// under is a patch that applies only to the object of that UID, and at that version.
func under(stored metav1.Object, patch map[string]any) ([]byte, error) {
	metadata := inner(patch, "metadata")
	metadata["uid"], metadata["resourceVersion"] = stored.GetUID(), stored.GetResourceVersion()
	text, err := json.Marshal(patch)
	if err != nil {
		return nil, fmt.Errorf("make patch: %w: %w", controlplane.ErrInvalid, err)
	}
	return text, nil
}

// patchType is the type of what diff returns. Only the API server's own types have a strategic merge patch.
func patchType(kind store.Kind) types.PatchType {
	if metadataOnly(kind) {
		return types.MergePatchType
	}
	return types.StrategicMergePatchType
}

// diff is the patch from one object to the next.
func diff(from, to runtime.Object) (map[string]any, error) {
	patch := map[string]any{}
	before, err := json.Marshal(from)
	if err != nil {
		return nil, fmt.Errorf("make patch: %w: %w", controlplane.ErrInvalid, err)
	}
	after, err := json.Marshal(to)
	if err != nil {
		return nil, fmt.Errorf("make patch: %w: %w", controlplane.ErrInvalid, err)
	}
	if _, is := from.(*metav1.PartialObjectMetadata); is {
		return merge(before, after)
	}
	text, err := strategicpatch.CreateTwoWayMergePatch(before, after, from)
	if err == nil {
		err = json.Unmarshal(text, &patch)
	}
	if err != nil {
		return nil, fmt.Errorf("make patch: %w: %w", controlplane.ErrInvalid, err)
	}
	was, isNode := from.(*corev1.Node)
	is, _ := to.(*corev1.Node)
	if isNode && !equality.Semantic.DeepEqual(was.Status.Addresses, is.Status.Addresses) {
		replaceAddresses(inner(patch, "status"), is.Status.Addresses)
	}
	return patch, nil
}

// merge is the JSON merge patch from one object to the next. It replaces lists as a whole.
func merge(before, after []byte) (map[string]any, error) {
	var from, to map[string]any
	if err := errors.Join(json.Unmarshal(before, &from), json.Unmarshal(after, &to)); err != nil {
		return nil, fmt.Errorf("make patch: %w: %w", controlplane.ErrInvalid, err)
	}
	return changes(from, to), nil
}

func changes(from, to map[string]any) map[string]any {
	patch := map[string]any{}
	for key := range from {
		if _, stays := to[key]; !stays {
			patch[key] = nil
		}
	}
	for key, value := range to {
		was, wasMap := from[key].(map[string]any)
		is, isMap := value.(map[string]any)
		switch {
		case reflect.DeepEqual(from[key], value):
		case wasMap && isMap:
			patch[key] = changes(was, is)
		default:
			patch[key] = value
		}
	}
	return patch
}

// replaceAddresses makes the patch replace all addresses. They are declared to merge by type, but a
// Node can have several of one type, and one would be lost (kubernetes/kubernetes#58445).
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
