package garbagecollector

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/store"
)

// Fate is what becomes of an object when another one is deleted.
type Fate string

// The fates.
const (
	Deleted  Fate = "deleted"
	Kept     Fate = "kept"     // another owner keeps it, or may keep it
	Orphaned Fate = "orphaned" // it stays, without the reference to its owner
)

// Branch is an object in a Tree.
type Branch struct {
	Key
	Depth int // of the root 0, of its dependents 1
	Fate  Fate
	Note  string // why it is kept, or what its deletion waits for
}

// Tree is what a deletion of an object does. It does not change.
type Tree struct {
	UID        types.UID // of the object
	Version    string    // its resourceVersion
	Branches   []Branch  // the object, then its dependents, each below the first of its owners
	Unreadable []Key     // objects that cannot be read: they may be dependents, too
}

// Tree returns what a deletion of an object with a policy does: ErrNotFound, or ErrUnavailable if not all
// kinds were listed yet. The object is read from the store, its dependents are those that are known.
func (c *Controller) Tree(ctx context.Context, key Key, policy metav1.DeletionPropagation) (Tree, error) {
	kind, known := c.graph.storeKind(key.Kind)
	if !known {
		return Tree{}, fmt.Errorf("%s: %w", key, controlplane.ErrNotFound)
	}
	o, err := c.store.Get(ctx, kind.Metadata(), key.Name)
	if err != nil {
		return Tree{}, err
	}
	if key.Kind == store.Nodes.Name { // its Lease may not be followed
		lease := Key{store.Leases.Name, key.Name}
		read, err := c.store.Get(ctx, store.Leases, lease.Name)
		switch {
		case err == nil:
			c.graph.lookedUp(lease, read)
		case !errors.Is(err, controlplane.ErrNotFound) && !errors.Is(err, store.ErrUnreadable):
			return Tree{}, err
		}
	}
	c.graph.mu.Lock()
	defer c.graph.mu.Unlock()
	if kind := c.graph.neverListed(); kind != "" {
		return Tree{}, fmt.Errorf("%w: %s are not listed yet", controlplane.ErrUnavailable, kind)
	}
	return c.graph.tree(c.graph.objectOf(key, o), policy), nil
}

// cascade works out one deletion with all dependents. The caller of its methods holds graph.mu.
type cascade struct {
	*graph
	root    *Object
	policy  metav1.DeletionPropagation
	deleted map[Key]*Object
	others  map[Key]Branch // that stay
}

// tree returns what a deletion of an object does. The caller holds mu.
func (g *graph) tree(root *Object, policy metav1.DeletionPropagation) Tree {
	c := &cascade{graph: g, root: root, policy: policy, deleted: map[Key]*Object{root.Key: root}, others: map[Key]Branch{}}
	for reached := []*Object{root}; len(reached) > 0; reached = reached[1:] {
		for _, o := range c.below(reached[0]) {
			if c.deleted[o.Key] != nil {
				continue
			}
			if b := c.branch(o); b.Fate != Deleted {
				c.others[o.Key] = b
				continue
			}
			c.deleted[o.Key] = o
			delete(c.others, o.Key)
			reached = append(reached, o)
		}
	}
	t := Tree{UID: root.UID, Version: root.Version}
	c.write(&t, root, nil, 0, map[Key]bool{})
	for _, k := range g.kinds {
		for name := range k.unreadable {
			t.Unreadable = append(t.Unreadable, Key{k.Name, name})
		}
	}
	slices.SortFunc(t.Unreadable, func(a, b Key) int { return strings.Compare(a.String(), b.String()) })
	return t
}

// below are the objects that refer to an owner, by name.
func (c *cascade) below(owner *Object) []*Object {
	found := map[*Object]struct{}{}
	for _, index := range owner.indexes() {
		for o := range c.owning[index] {
			if o.Key != c.root.Key && slices.ContainsFunc(o.Owners, func(ref Owner) bool { return ref.index() == index && owner.is(ref, o.Namespace) }) {
				found[o] = struct{}{}
			}
		}
	}
	return slices.SortedFunc(maps.Keys(found), func(a, b *Object) int { return strings.Compare(a.String(), b.String()) })
}

// orphans reports whether the dependents of an object that is deleted stay.
func (c *cascade) orphans(o *Object) bool {
	if o.Key == c.root.Key {
		return c.policy == metav1.DeletePropagationOrphan
	}
	return o.has(metav1.FinalizerOrphanDependents)
}

// branch decides for an object of which an owner is deleted.
func (c *cascade) branch(o *Object) Branch {
	b := Branch{Key: o.Key, Fate: Deleted}
	if o.Deleting {
		return b
	}
	var stay, unseen []string
	gone, orphaned := 0, 0
	for _, ref := range o.Owners {
		deleted := c.deletedOwner(ref, o.Namespace)
		switch own := c.owner(o, ref); {
		case deleted != nil && c.orphans(deleted), deleted == nil && own.state == orphaning:
			orphaned++
		case deleted != nil, own.state == absent, own.state == waiting:
			gone++
		case own.state == unknown:
			unseen = append(unseen, fmt.Sprintf("owner %s: %s", ref, own.why))
		default:
			stay = append(stay, ref.String())
		}
	}
	switch {
	case len(stay) > 0:
		b.Fate, b.Note = Kept, fmt.Sprintf("owner %s remains", join(stay))
	case len(unseen) > 0:
		b.Fate, b.Note = Kept, unseen[0]
	case orphaned > 0:
		b.Fate = Orphaned
		if gone > 0 {
			b.Note = "deleted instead if its other owners are deleted later"
		}
	}
	return b
}

// deletedOwner is the owner of a reference, if it is one that is deleted; else nil.
func (c *cascade) deletedOwner(ref Owner, namespace string) *Object {
	if c.root.is(ref, namespace) {
		return c.root
	}
	for _, found := range c.owners[ref.index()] {
		if o := c.deleted[found.Key]; o != nil && o.is(ref, namespace) {
			return o
		}
	}
	return nil
}

// write adds an object and what is below it.
func (c *cascade) write(t *Tree, o, owner *Object, depth int, written map[Key]bool) {
	if written[o.Key] {
		return
	}
	written[o.Key] = true
	b, stays := c.others[o.Key]
	if !stays {
		b = Branch{Key: o.Key, Fate: Deleted, Note: c.note(o, owner)}
	}
	b.Depth = depth
	t.Branches = append(t.Branches, b)
	if stays {
		return
	}
	for _, d := range c.below(o) {
		c.write(t, d, o, depth+1, written)
	}
}

// note says what the deletion of an object waits for, and who waits for it.
func (c *cascade) note(o, owner *Object) string {
	var notes []string
	if owner != nil && c.policy == metav1.DeletePropagationForeground && o.blocks(owner) {
		notes = append(notes, "before its owner")
	}
	others := slices.DeleteFunc(slices.Clone(o.Finalizers), func(finalizer string) bool {
		return finalizer == metav1.FinalizerOrphanDependents || finalizer == metav1.FinalizerDeleteDependents
	})
	if len(others) > 0 {
		notes = append(notes, "once other programs have removed its finalizers: "+join(others))
	}
	if o.Deleting {
		notes = append(notes, "its deletion was requested before")
	}
	return strings.Join(notes, "; ")
}
