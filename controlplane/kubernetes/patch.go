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

// statusPatch returns the strategic merge patch that sets the status of the stored Node, if the
// Node still has that version.
func statusPatch(stored *corev1.Node, status corev1.NodeStatus) ([]byte, error) {
	next := stored.DeepCopy()
	next.Status = status
	return twoWayPatch(stored, next)
}

// nodePatch returns the strategic merge patch that changes the stored Node to the adopted one,
// except the status, if the Node still has that version; nil if both are the same.
func nodePatch(stored, adopted *corev1.Node) ([]byte, error) {
	if equality.Semantic.DeepEqual(stored, adopted) {
		return nil, nil
	}
	return twoWayPatch(stored, adopted)
}

// twoWayPatch returns the patch from one Node to the other, with UID and resourceVersion of the
// first.
func twoWayPatch(from, to *corev1.Node) ([]byte, error) {
	patch, err := diff(from, to)
	if err != nil {
		return nil, err
	}
	return under(from, patch)
}

// under adds UID and version to a patch, so that it applies only to that object in that state.
func under(stored metav1.Object, patch map[string]any) ([]byte, error) {
	metadata := inner(patch, "metadata")
	metadata["uid"], metadata["resourceVersion"] = stored.GetUID(), stored.GetResourceVersion()
	text, err := json.Marshal(patch)
	if err != nil {
		return nil, fmt.Errorf("make patch: %w: %w", controlplane.ErrInvalid, err)
	}
	return text, nil
}

// patchType returns the type of diff's patches. Only the API server's own types have a strategic
// merge patch.
func patchType(kind store.Kind) types.PatchType {
	if metadataOnly(kind) {
		return types.MergePatchType
	}
	return types.StrategicMergePatchType
}

// diff returns the patch from one object to the other.
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

// merge returns the JSON merge patch from one object to the other. It replaces lists as a whole.
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

// replaceAddresses makes the patch replace all addresses. By their declaration they merge by type.
// But a Node can have several of one type, and one would be lost (kubernetes/kubernetes#58445).
func replaceAddresses(status map[string]any, addresses []corev1.NodeAddress) {
	list := []any{map[string]any{"$patch": "replace"}}
	for _, address := range addresses {
		list = append(list, address)
	}
	status["addresses"] = list
	delete(status, "$setElementOrder/addresses")
}

// inner returns the object at that key, and adds it if it is missing.
func inner(patch map[string]any, key string) map[string]any {
	object, ok := patch[key].(map[string]any)
	if !ok {
		object = map[string]any{}
		patch[key] = object
	}
	return object
}
