package garbagecollector

import (
	"strconv"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"hostler.io/hostler/controlplane/store"
	"hostler.io/hostler/internal/loop"
)

// MostOrphaned is mostOrphaned.
const MostOrphaned = mostOrphaned

// OrphanedAfter is how many owners are remembered after so many orphan deletions, and whether the last of them is.
func OrphanedAfter(deletions int) (n int, last bool) {
	g := newGraph(loop.NewSignal(), false)
	var o *Object
	for i := range deletions {
		o = &Object{Key: Key{"things", strconv.Itoa(i)}, UID: types.UID(strconv.Itoa(i))}
		g.objects[o.Key] = entry{Object: o}
		g.orphans(o.Key)
	}
	_, last = g.orphaned[o.identity()]
	return len(g.orphaned), last
}

// Remembered is how many deleted Nodes and types of owners the controller remembers.
func (c *Controller) Remembered() int {
	c.graph.mu.Lock()
	defer c.graph.mu.Unlock()
	return len(c.graph.deleted) + len(c.graph.depends)
}

// Add makes a kind known, and returns the follower of its objects.
func (c *Controller) Add(k store.Kind) store.Tracker { return c.graph.add(k, store.AllChanges) }

// Decide decides for all objects that have changed.
func (c *Controller) Decide() int { return len(c.graph.decide()) }

// Marked counts the objects that are to be decided again.
func (c *Controller) Marked() int {
	c.graph.mu.Lock()
	defer c.graph.mu.Unlock()
	return len(c.graph.marks.objects)
}

// Candidates counts the objects that decisions about all objects compare: as owners of references, and as dependents.
func (c *Controller) Candidates() (owners, dependents int) {
	c.graph.mu.Lock()
	defer c.graph.mu.Unlock()
	for _, o := range c.graph.objects {
		for _, ref := range o.Owners {
			owners += len(c.graph.owners[ref.index()])
		}
		for _, index := range o.indexes() {
			dependents += len(c.graph.owning[index])
		}
	}
	return owners, dependents
}

// Unreadable counts the objects that cannot be read and that a decision about an owner of that type looks through.
func (c *Controller) Unreadable(of schema.GroupKind) (n int) {
	c.graph.mu.Lock()
	defer c.graph.mu.Unlock()
	for _, k := range c.graph.kinds {
		n += len(k.mayBelongTo(&Object{Type: of}))
	}
	return n
}

// DecideInParts decides as Decide does, and calls between after each part with how many objects and references were
// decided under one lock.
func (c *Controller) DecideInParts(between func(work int)) (due int) {
	todo, steps := c.graph.takeDirty()
	for due = len(steps); len(todo) > 0; due += len(steps) {
		before := todo
		todo, steps = c.graph.decideSome(todo)
		work := 0
		for _, o := range before[:len(before)-len(todo)] {
			work += 1 + len(o.Owners)
		}
		between(work)
	}
	return due
}

// Waits returns why the deletion of an owner waits on Kubernetes, if a dependent of that kind is all there is; empty if
// it does not wait.
func Waits(ownerKind, kind store.Kind, owner, dependent store.Object) string {
	g := newGraph(loop.NewSignal(), false)
	stored := func(k store.Kind, o store.Object) string {
		if k.NameOf != nil {
			return k.NameOf(o)
		}
		return o.GetName()
	}
	for _, f := range []struct {
		*follower
		store.Kind
		store.Object
	}{{g.add(ownerKind, store.AllChanges), ownerKind, owner}, {g.add(kind, store.AllChanges), kind, dependent}} {
		f.Begin()
		f.Set(stored(f.Kind, f.Object), f.Object)
		f.Synced()
		f.Reached("9")
	}
	g.decide()
	return g.verdicts[Key{ownerKind.Name, stored(ownerKind, owner)}].Waits
}
