package garbagecollector

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"hostler.io/hostler/controlplane/store"
)

// dependents are the objects that refer to an owner, in no order. The caller holds mu.
func (g *graph) dependents(owner *Object) []*Object {
	var list []*Object
	for o := range g.owning[owner.index()] {
		if slices.ContainsFunc(o.Owners, func(ref Owner) bool { return !ref.Implied && owner.is(ref, o.Namespace) }) {
			list = append(list, o)
		}
	}
	return list
}

// owner finds what an owner is for a dependent. The caller holds mu.
func (g *graph) owner(o *Object, ref Owner) owner {
	if ref.Invalid != "" {
		return owner{state: unknown, why: ref.Invalid}
	}
	var elsewhere, deleted *Object
	for _, found := range g.owners[ref.index()] {
		switch is := found.is(ref, o.Namespace); {
		case is && (found.orphans() || found.waits()):
			deleted = found
		case is: // it counts more: another host may store the same pod, and delete it
			return owner{state: present}
		default:
			elsewhere = found
		}
	}
	switch {
	case deleted != nil:
		return g.ending(o, ref, deleted)
	case elsewhere != nil && o.Namespace == "":
		return owner{state: unknown, why: fmt.Sprintf("it is in namespace %s; an object without a namespace cannot have such an owner", elsewhere.Namespace), refused: true, elsewhere: elsewhere}
	case g.wasOrphaned(ref, o.Namespace):
		return owner{state: orphaning}
	case ref.Implied && !g.deleted[ref.index()]:
		return owner{state: present}
	}
	own := g.missing(o, ref)
	if elsewhere != nil {
		own.why, own.refused, own.elsewhere = fmt.Sprintf("it is in namespace %s; an owner in another namespace counts as absent", elsewhere.Namespace), true, elsewhere
	}
	return own
}

// ending is the state of an owner that is being deleted. If several hosts can store an owner of that name, the deletion
// of one counts only if there is no other one. The caller holds mu.
func (g *graph) ending(o *Object, ref Owner, deleted *Object) owner {
	own := owner{state: waiting, others: g.deletionOf(deleted, metav1.DeletePropagationForeground)}
	if deleted.orphans() {
		own = owner{state: orphaning, others: g.deletionOf(deleted, metav1.DeletePropagationOrphan)}
	}
	if _, _, within := g.locate(ref, o.Namespace); within != nil {
		other := g.missing(o, ref)
		if other.state == unknown {
			return other
		}
		own.within = other.within
	}
	return own
}

// ownersOf are the owners of an object as it sees them. The caller holds mu.
func (g *graph) ownersOf(o *Object) []owner {
	owners := make([]owner, len(o.Owners))
	for i, ref := range o.Owners {
		owners[i] = g.owner(o, ref)
	}
	return owners
}

// deletionOf is the state of an owner that a write to a dependent compares: how its deletion is carried out,
// which a person can change. Its version changes with each dependent if another controller counts them. The
// caller holds mu.
func (g *graph) deletionOf(o *Object, policy metav1.DeletionPropagation) []store.Reference {
	return []store.Reference{{Kind: g.kinds[o.Kind].Kind, Name: o.Name, UID: o.UID, Deletion: policy}}
}

// missing decides whether an owner that is not in the graph is absent. The caller holds mu.
func (g *graph) missing(o *Object, ref Owner) owner {
	k, names, within := g.locate(ref, o.Namespace)
	switch {
	case k == nil && g.deleted[ref.index()]:
		return owner{state: absent}
	case k == nil:
		return owner{state: unknown, why: "the store has no such type"}
	case o.Namespace == "" && (k.Kind.NameOf != nil || k.Namespace != "" || within != nil):
		return owner{state: unknown, why: "its type has namespaces; an object without a namespace cannot have such an owner", refused: true}
	case k.err != nil:
		return owner{state: unknown, why: fmt.Sprintf("%s cannot be listed: %v", k.Name, k.err)}
	case k.position == "": // a dependent may be listed before its owner
		return owner{state: unknown, why: k.Name + " are not listed yet"}
	}
	missing := owner{state: absent, within: within}
	for _, name := range names {
		if err := k.unreadable[name]; err != nil {
			return owner{state: unknown, why: err.Error()}
		}
		missing.others = append(missing.others, store.Reference{Kind: k.Kind, Name: name, UID: ref.UID})
	}
	unreadable := k.ofPeople
	if within != nil {
		unreadable = k.unreadable
	}
	for name, err := range unreadable {
		// It may also be stored in a folder where its type does not belong, which makes it unreadable.
		misplaced := k.Kind.Name == store.Objects.Name && path.Base(name) == ref.Name && Key{k.Name, name}.writer() == ""
		if misplaced || within != nil && strings.HasPrefix(k.Folder()+name, within.Folder()) {
			return owner{state: unknown, why: fmt.Sprintf("%s: %v", Key{k.Name, name}, err)}
		}
	}
	return missing
}

// locate returns the kind of an owner, and the names that it can have there. If they cannot be known,
// within is the part of the kind where it would be. The caller holds mu.
func (g *graph) locate(ref Owner, namespace string) (k *kind, names []string, within *store.Kind) {
	if k = g.byType(ref.Type); k != nil {
		switch {
		case k.Nested:
			return k, nil, &k.Kind
		case k.NameOf != nil:
			return k, []string{namespace + "/" + ref.Name}, nil
		case k.Namespace != "" && k.Namespace != namespace: // an owner in another namespace counts as absent
			return k, nil, nil
		}
		return k, []string{ref.Name}, nil
	}
	if k = g.kinds[store.Objects.Name]; k == nil {
		return nil, nil, nil
	}
	if ref.Type == podType { // their Node is part of their name
		pods := store.Pods(true)
		return k, nil, &pods
	}
	resource := store.Resource(ref.Type.Kind)
	names = []string{resource + "/" + ref.Name}
	if namespace != "" {
		names = append(names, resource+"/"+namespace+"/"+ref.Name)
	}
	return k, names, nil
}

// byType returns the kind of an API type, if it has one of its own. The caller holds mu.
func (g *graph) byType(of schema.GroupKind) *kind {
	for _, k := range g.kinds {
		if k.GVK.GroupKind() == of {
			return k
		}
	}
	return nil
}

// neverListed names a kind of which nothing is known yet; empty if there is none. The caller holds mu.
func (g *graph) neverListed() string {
	for _, k := range g.kinds {
		if k.synced == 0 {
			return k.Name
		}
	}
	return ""
}

// unseenKind names a kind that cannot be listed now, and may have dependents of an owner that are not known;
// empty if there is none. within are such kinds that may have objects in the namespace of the owner alone:
// there, they can be listed if none of their objects is to blame. likely leaves out kinds of which no object
// is known that has an owner of that type. The caller holds mu.
func (g *graph) unseenKind(o *Object, likely bool) (name string, within []store.Kind) {
	for _, name := range slices.Sorted(maps.Keys(g.kinds)) {
		k := g.kinds[name]
		switch {
		case k.synced > 0 && k.err == nil, !k.mayDepend(o), likely && g.depends[o.Type][name] == 0:
		case k.err != nil && k.Kind.NameOf != nil && o.Namespace != "":
			within = append(within, k.Kind)
		default:
			return name, nil
		}
	}
	return "", within
}

// anyUnreadable names an object that cannot be read and may depend on an owner, and why; nil if there is none. The
// caller holds mu.
func (g *graph) anyUnreadable(owner *Object) (Key, error) {
	for _, k := range g.kinds {
		if k.Name == store.Nodes.Name && g.finishes { // there, a Node belongs to nothing
			continue
		}
		for name, err := range k.mayBelongTo(owner) {
			if owner.Namespace != "" && k.Kind.NameOf != nil && !k.Nested && !strings.HasPrefix(name, owner.Namespace+"/") {
				continue // its owners are in its own namespace, or have none
			}
			key := Key{k.Name, name}
			if host := key.writer(); host == "" || owner.Type == nodeType && owner.Own == host {
				return key, err
			}
		}
	}
	return Key{}, nil
}
