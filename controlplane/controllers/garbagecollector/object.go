// Package garbagecollector is the controller that deletes objects whose owners are gone, and carries out
// foreground and orphan deletions.
//
// A graph keeps the metadata of all objects. It decides for one object at a time, again after each change
// of the object, its owners or its dependents. Nothing is deleted on the word of the graph alone: the
// store checks with each write that the owners are absent.
package garbagecollector

import (
	"path"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

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
	UID   types.UID // empty for a Node that is known by its name only
	Block bool      // blockOwnerDeletion: foreground deletion of the owner waits for the object
}

// String is KIND/NAME, as people write it.
func (o Owner) String() string { return store.Resource(o.Type.Kind) + "/" + o.Name }

// Object is what is kept of an object. It does not change.
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
func objectOf(key Key, o store.Object) *Object {
	kept := &Object{
		Key: key, Type: o.GetObjectKind().GroupVersionKind().GroupKind(), Namespace: o.GetNamespace(), Own: o.GetName(),
		UID: o.GetUID(), Version: o.GetResourceVersion(), Finalizers: o.GetFinalizers(), Deleting: o.GetDeletionTimestamp() != nil,
	}
	for _, ref := range o.GetOwnerReferences() {
		version, err := schema.ParseGroupVersion(ref.APIVersion)
		if err != nil { // no type has this version
			version.Group = ref.APIVersion
		}
		kept.Owners = append(kept.Owners, Owner{
			Type: schema.GroupKind{Group: version.Group, Kind: ref.Kind}, Name: ref.Name, UID: ref.UID,
			Block: ref.BlockOwnerDeletion != nil && *ref.BlockOwnerDeletion,
		})
	}
	if node, _, below := strings.Cut(key.Name, "/"); below && key.Kind == store.Events.Name && len(kept.Owners) == 0 {
		kept.Owners = []Owner{{Type: nodeType, Name: node}}
	}
	return kept
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
	case o.Type != ref.Type || o.Own != ref.Name || ref.UID != "" && o.UID != ref.UID:
		return false
	case o.Namespace == "":
		return true
	}
	return o.Namespace == namespace
}

// indexes are the keys by which its dependents find an object.
func (o *Object) indexes() []string {
	keys := []string{string(o.UID)}
	if o.Type == nodeType {
		keys = append(keys, nodeIndex(o.Own))
	}
	return keys
}

// index is the key by which a reference finds its owner.
func (o Owner) index() string {
	if o.UID == "" {
		return nodeIndex(o.Name)
	}
	return string(o.UID)
}

func nodeIndex(name string) string { return path.Join(store.Nodes.Name, name) }
