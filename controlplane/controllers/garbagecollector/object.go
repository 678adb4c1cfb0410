// Package garbagecollector is the controller that deletes objects whose owners are gone, and carries out
// foreground and orphan deletions.
//
// A graph keeps the metadata of all objects. It decides for one object at a time, again after each change
// of the object, its owners or its dependents. The graph can be late, so each write makes the store check
// that the owners are absent.
package garbagecollector

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/store"
)

// Name is the controller's name in the configuration, in elections and in metrics.
const Name = "garbage-collector"

// Key is where an object is stored: the name of its store.Kind, and its name there.
type Key struct{ Kind, Name string }

// String is KIND/NAME.
func (k Key) String() string {
	if k.Kind == store.Objects.Name { // its names begin with the kind
		return k.Name
	}
	return k.Kind + "/" + k.Name
}

// Owner is a reference of an object to an owner.
type Owner struct {
	Type  schema.GroupKind
	Name  string
	UID   types.UID
	Block bool // blockOwnerDeletion: foreground deletion of the owner waits for the object
	// Implied says that the object does not refer to the owner, a Node, but belongs to it by its name.
	Implied bool
	Invalid string // why no object can be meant; empty if one can
}

// String is KIND/NAME, as people write it.
func (o Owner) String() string { return store.Resource(o.Type.Kind) + "/" + o.Name }

// Object is what is kept of an object. Only its Version changes.
type Object struct {
	Key
	Type       schema.GroupKind
	Namespace  string
	Own        string // its name within Type and Namespace
	UID        types.UID
	Version    string // resourceVersion
	Owners     []Owner
	Finalizers []string
	Deleting   bool // its deletion was requested
}

// objectOf is what is kept of an object that is stored under a key.
func (g *graph) objectOf(key Key, o store.Object) *Object {
	kept := &Object{
		Key: key, Type: o.GetObjectKind().GroupVersionKind().GroupKind(), Namespace: o.GetNamespace(), Own: o.GetName(),
		UID: o.GetUID(), Version: o.GetResourceVersion(), Finalizers: o.GetFinalizers(), Deleting: o.GetDeletionTimestamp() != nil,
	}
	writer := key.writer()
	for _, ref := range o.GetOwnerReferences() {
		owner := ownerOf(ref)
		owner.Block = owner.Block && (g.finishes || !byAnyNode(key.Kind))
		if g.mayBelong(key, writer, owner) {
			kept.Owners = append(kept.Owners, owner)
		}
	}
	if writer != "" && key.Kind == store.Events.Name && len(kept.Owners) == 0 {
		kept.Owners = []Owner{{Type: nodeType, Name: writer, Implied: true}}
	}
	return kept
}

// mayBelong reports whether a reference counts. What a host writes can belong to nothing but its own Node, and its Node
// to nothing on etcd, and to no Node on Kubernetes: so it delays no deletion of others.
func (g *graph) mayBelong(key Key, writer string, to Owner) bool {
	switch {
	case key.Kind == store.Nodes.Name:
		return to.Type != nodeType && !g.finishes
	case writer == "":
		return true
	}
	return to.Type == nodeType && to.Name == writer
}

// writer is the host that alone may write an object, as the key shows; empty if there is none.
func (k Key) writer() string {
	switch k.Kind {
	case store.Leases.Name, csiNodes:
		return k.Name
	case leases:
		if own, is := strings.CutPrefix(k.Name, controlplane.LeaseNamespace+"/"); is {
			return own
		}
	}
	_, host := store.HostFolder(k.Kind + "/" + k.Name)
	return host
}

// ownerOf reads a reference.
func ownerOf(ref metav1.OwnerReference) Owner {
	version, err := schema.ParseGroupVersion(ref.APIVersion)
	owner := Owner{
		Type: schema.GroupKind{Group: version.Group, Kind: ref.Kind}, Name: ref.Name, UID: ref.UID,
		Block: ref.BlockOwnerDeletion != nil && *ref.BlockOwnerDeletion,
	}
	switch {
	case err != nil || version.Version == "":
		owner.Invalid = fmt.Sprintf("the reference has apiVersion %q", ref.APIVersion)
	case ref.Kind == "" || ref.Name == "" || ref.UID == "":
		owner.Invalid = "the reference needs kind, name and uid"
	case strings.Contains(ref.Name, "/"):
		owner.Invalid = "no object has this name"
	}
	return owner
}

// refers reports whether two owners are the same object.
func (o Owner) refers(other Owner) bool {
	return o.Type == other.Type && o.Name == other.Name && o.UID == other.UID
}

// host is the name of the Node whose own pod the object is; empty for other objects.
func (o *Object) host() string {
	if o.Type != podType {
		return ""
	}
	return o.writer()
}

// Kinds on Kubernetes whose object a node may write if it has the node's name.
const (
	leases   = "leases.coordination.k8s.io" // in one namespace
	csiNodes = "csinodes.storage.k8s.io"
)

// byAnyNode reports whether any node may create objects of a kind on Kubernetes, with names and owners that it
// chooses. No foreground deletion waits for these.
func byAnyNode(kind string) bool {
	switch kind {
	case "resourceslices.resource.k8s.io", "certificatesigningrequests.certificates.k8s.io", "podcertificaterequests.certificates.k8s.io":
		return true
	}
	return false
}

// Types that are known to this package: on etcd, an Event belongs to the Node that it is about, and
// a host deletes the objects of its own pods.
var (
	nodeType = store.Nodes.GVK.GroupKind()
	podType  = store.Pods(true).GVK.GroupKind()
)

// has reports whether the object has a finalizer.
func (o *Object) has(finalizer string) bool { return slices.Contains(o.Finalizers, finalizer) }

// orphans reports whether the object is being deleted, and its dependents are to stay.
func (o *Object) orphans() bool { return o.Deleting && o.has(metav1.FinalizerOrphanDependents) }

// waits reports whether the object is being deleted, and its dependents first.
func (o *Object) waits() bool { return o.Deleting && o.has(metav1.FinalizerDeleteDependents) }

// is reports whether an object is the owner that a dependent in a namespace refers to.
func (o *Object) is(ref Owner, namespace string) bool {
	switch {
	case ref.Invalid != "" || o.Type != ref.Type || o.Own != ref.Name || !ref.Implied && o.UID != ref.UID:
		return false
	case o.Namespace == "":
		return true
	}
	return o.Namespace == namespace
}

// same reports whether all is equal that decisions depend on.
func (o *Object) same(other *Object) bool {
	return o.identity() == other.identity() && o.Deleting == other.Deleting &&
		slices.Equal(o.Owners, other.Owners) && slices.Equal(o.Finalizers, other.Finalizers)
}

// indexes are the keys by which its dependents find an object.
func (o *Object) indexes() []identity {
	var keys []identity
	if o.UID != "" { // otherwise it is no owner, and there may be many
		keys = append(keys, o.index())
	}
	if o.Type == nodeType {
		keys = append(keys, nodeIndex(o.Own))
	}
	return keys
}

// index is the key by which references find an object.
func (o *Object) index() identity { return identity{of: o.Type, name: o.Own, uid: o.UID} }

// index is the key by which a reference finds its owner.
func (o Owner) index() identity {
	if o.Implied {
		return nodeIndex(o.Name)
	}
	return identity{of: o.Type, name: o.Name, uid: o.UID}
}

// owning are the keys by which its owners find an object.
func (o *Object) owning() []identity {
	var keys []identity
	for _, ref := range o.Owners {
		keys = append(keys, ref.index())
	}
	if host := o.host(); host != "" {
		keys = append(keys, nodeIndex(host))
	}
	return keys
}

// nodeIndex is the key by which what belongs to a Node by its name finds it.
func nodeIndex(name string) identity { return identity{of: nodeType, name: name} }
