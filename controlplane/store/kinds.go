package store

import (
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Kind is a kind of objects. Its Name identifies it.
type Kind struct {
	Name string // the resource on Kubernetes and the directory on etcd, such as "nodes"
	// GVK is the API type; empty for a kind whose objects are of several types.
	GVK schema.GroupVersionKind
	// Namespace is the namespace of all objects of the kind on Kubernetes. It is empty for a
	// cluster-scoped kind, and for a kind whose names have several parts.
	Namespace string
	// NameOf returns the name that an object is stored under, if that is not its own name: several
	// parts with slashes between them. On Kubernetes it is NAMESPACE/NAME.
	NameOf func(Object) string
	// Nested says that names have several parts. The metadata of an object has only the last one.
	Nested bool
	// New returns an empty object.
	New func() Object
}

// Nodes, Leases and Events are the kinds that agents write.
var (
	Nodes = Kind{
		Name: "nodes", GVK: corev1.SchemeGroupVersion.WithKind("Node"),
		New: func() Object { return &corev1.Node{} },
	}
	Leases = Kind{
		Name: "leases", GVK: coordinationv1.SchemeGroupVersion.WithKind("Lease"), Namespace: corev1.NamespaceNodeLease,
		New: func() Object { return &coordinationv1.Lease{} },
	}
	// Events are Events about Nodes on etcd, by NODE/NAME.
	Events = Kind{Name: "events", GVK: corev1.SchemeGroupVersion.WithKind("Event"), Nested: true, New: newMetadata}
)

// Slots is the name of the kind of reboot slots on etcd, see package slots.
const Slots = "slots"

// Objects are all other objects on etcd: RESOURCE/NAME, or RESOURCE/NAMESPACE/NAME with a namespace.
// RESOURCE is the plural of their kind in lower case, such as "tickets".
var Objects = Kind{Name: "objects", Nested: true, New: newMetadata}

// Below returns the kind of the Objects of one RESOURCE. Their names begin after RESOURCE.
func Below(resource string) Kind { return Kind{Name: resource, Nested: true, New: newMetadata} }

// Pods returns the kind of pods, with the names NAMESPACE/NAME. If hosts report their own pods, as
// on etcd, the names are NODE/NAMESPACE/NAME. So a host can have the right to write only below its
// own name.
func Pods(byHosts bool) Kind {
	k := Kind{
		Name: "pods", GVK: corev1.SchemeGroupVersion.WithKind("Pod"), New: func() Object { return &corev1.Pod{} },
		NameOf: func(o Object) string { return o.GetNamespace() + "/" + o.GetName() },
	}
	if byHosts {
		k.Nested = true
		k.NameOf = func(o Object) string {
			pod, _ := o.(*corev1.Pod)
			return pod.Spec.NodeName + "/" + pod.Namespace + "/" + pod.Name
		}
	}
	return k
}

func newMetadata() Object { return &metav1.PartialObjectMetadata{} }

// Metadata returns the kind with only the metadata of its objects. An Update keeps the other
// fields.
func (k Kind) Metadata() Kind {
	k.New = newMetadata
	if k.Nested {
		k.NameOf = nil
	}
	return k
}

// Folder returns the path of the kind's objects on etcd, below the prefix of the fleet.
func (k Kind) Folder() string {
	switch k.Name {
	case Nodes.Name, Leases.Name, Events.Name, Objects.Name:
		return k.Name + "/"
	}
	if k.Name == Slots && !k.GVK.Empty() { // people may have a kind with the same name
		return Slots + "/"
	}
	return Objects.Name + "/" + k.Name + "/"
}

// parts reports whether names have several parts.
func (k Kind) parts() bool { return k.NameOf != nil || k.Nested }

// form is how names with several parts are written. If NameOf is nil, they may have more.
func (k Kind) form() string {
	if k.Nested && k.NameOf != nil {
		return "NODE/NAMESPACE/NAME"
	}
	return "NAMESPACE/NAME"
}

// Is reports whether a name can be one of this kind: other keys below its folder are ignored.
func (k Kind) Is(name string) bool { return name != "" && (k.parts() || !strings.Contains(name, "/")) }

// Resource returns the plural of a kind in lower case, such as "tickets" for Ticket.
func Resource(kind string) string {
	plural, _ := meta.UnsafeGuessKindToResource(schema.GroupVersionKind{Kind: kind})
	return plural.Resource
}
