package garbagecollector

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"hostler.io/hostler/controlplane/store"
	"hostler.io/hostler/internal/few"
)

// Do is what a step does.
type Do string

// The steps.
const (
	Delete  Do = "delete"                  // request the deletion of the object
	Detach  Do = "remove owner references" // those in Step.Owners
	Release Do = "remove finalizer"        // Step.Finalizer
	Remove  Do = "remove"                  // an object whose deletion nothing holds any more
)

// Step is one write that is due. It does not change.
type Step struct {
	Key
	UID       types.UID
	Revision  string // resourceVersion of the object that was decided on
	Do        Do
	Policy    metav1.DeletionPropagation // of Delete
	Owners    []Owner                    // of Detach
	Finalizer string                     // of Release
	Reason    string

	others []store.Reference // the states of other objects that are the reason
	within []store.Kind      // kinds where an owner would be stored under a name that is not known
	shared bool              // the object has another owner with a UID of Owners
	// unchanged has how far each kind was followed when the step was decided, for Release.
	unchanged []store.Position
	// unlisted are kinds that the write lists in the namespace of the object: they cannot be listed as a whole.
	unlisted []store.Kind
}

// bound reports whether the step needs to know how far each kind was followed.
func (s *Step) bound() bool { return s.Do == Release || len(s.within) > 0 }

// Object is KIND/NAME.
func (s Step) Object() string { return s.String() }

// Version is the resourceVersion that was decided on.
func (s Step) Version() string { return s.Revision }

// Action is what the step does, for people.
func (s Step) Action() string {
	switch s.Do {
	case Delete:
		if s.Policy != metav1.DeletePropagationBackground {
			return fmt.Sprintf("%s (%s)", s.Do, strings.ToLower(string(s.Policy)))
		}
	case Release:
		return fmt.Sprintf("%s %s", s.Do, s.Finalizer)
	case Detach, Remove:
	}
	return string(s.Do)
}

// Verdict is what is to be done with one object. The zero value is nothing.
type Verdict struct {
	Step      *Step
	Waits     string // what the object waits for before it can be deleted
	Undecided string // why it is not known whether to delete it
	// again says that an owner keeps the object, and that other owners cannot be read now. Once they can be read,
	// references to them may have to be removed.
	again bool
}

// fact reports whether there is something to do, or to report.
func (v Verdict) fact() bool { return v.Step != nil || v.Waits != "" || v.Undecided != "" }

// due reports whether there is something to do. complete says that it is known how far each kind was followed.
func (v Verdict) due(complete bool) bool { return v.Step != nil && (complete || !v.Step.bound()) }

// state is what an owner is for its dependent.
type state int

const (
	present   state = iota
	orphaning       // being deleted; its dependents stay
	waiting         // being deleted; its dependents first
	absent
	unknown // cannot be read, or is refused
)

// owner is the state of an owner for one dependent.
type owner struct {
	state
	others []store.Reference // the places where it is absent, or its state
	within *store.Kind       // the kind that it is not in, if its name there is unknown
	why    string            // it is unknown, or refused
	// refused says that the dependent cannot have the owner, which is in another namespace.
	refused   bool
	elsewhere *Object // the refused owner, if it is known
}

// verdict decides for one object with these owners.
func (g *graph) verdict(o *Object, owners []owner) Verdict {
	detach := g.step(o, Detach, "its owner is being deleted without its dependents")
	for i, ref := range o.Owners {
		if owners[i].state == orphaning {
			detach.loses(o, ref, owners[i])
		}
	}
	switch {
	case len(detach.Owners) > 0:
		return Verdict{Step: detach}
	case o.Deleting:
		return g.deletion(o)
	case len(owners) == 0:
		return Verdict{}
	}
	return g.owned(o, owners)
}

// owned decides for an object with owners.
func (g *graph) owned(o *Object, owners []owner) Verdict {
	count := map[state]int{}
	for _, own := range owners {
		count[own.state]++
	}
	gone := g.step(o, Delete, "") // with its references to owners that do not keep it
	for i, own := range owners {
		if own.state == absent || own.state == waiting {
			gone.loses(o, o.Owners[i], own)
		}
	}
	left := count[absent] + count[waiting] - len(gone.Owners) // more than one write can compare
	names := ownerNames(o, owners)
	switch {
	case count[present] > 0 && len(gone.Owners) > 0 || left > 0 && count[unknown] == 0:
		gone.Do, gone.Reason = Detach, fmt.Sprintf("%s does not exist or is being deleted; other owners remain", names)
		return Verdict{Step: gone}
	case count[present] > 0:
		return Verdict{again: count[unknown] > 0}
	case count[unknown] > 0:
		i := slices.IndexFunc(owners, func(own owner) bool { return own.state == unknown })
		return Verdict{Undecided: fmt.Sprintf("owner %s: %s", o.Owners[i], owners[i].why)}
	}
	gone.Owners, gone.Policy, gone.Reason = nil, g.policy(o, count[waiting] > 0), fmt.Sprintf("owner %s does not exist", names)
	if count[waiting] > 0 {
		gone.Reason = fmt.Sprintf("owner %s is being deleted after its dependents", names)
	}
	return Verdict{Step: gone}
}

// loses adds an owner to those whose references the step removes, up to as many as one write can compare.
func (s *Step) loses(o *Object, ref Owner, own owner) {
	if len(s.others)+len(own.others) > store.MostOthers {
		return
	}
	s.shared = s.shared || slices.ContainsFunc(o.Owners, func(other Owner) bool { return other.UID == ref.UID && !other.refers(ref) })
	s.Owners, s.others = append(s.Owners, ref), append(s.others, own.others...)
	if own.within != nil && !slices.ContainsFunc(s.within, func(k store.Kind) bool { return k.Name == own.within.Name }) {
		s.within = append(s.within, *own.within)
	}
}

// ownerNames names the owners that do not keep an object, the first three.
func ownerNames(o *Object, owners []owner) string {
	var names []string
	for i, own := range owners {
		if own.state == absent || own.state == waiting {
			names = append(names, o.Owners[i].String())
		}
	}
	return join(names)
}

// join names the first three.
func join(names []string) string {
	slices.Sort(names)
	return few.Names(names, 3)
}

// policy is how a dependent is to be deleted: as its finalizers say, and with its own dependents first if
// its owner waits for it.
func (g *graph) policy(o *Object, ownerWaits bool) metav1.DeletionPropagation {
	switch {
	case o.has(metav1.FinalizerOrphanDependents):
		return metav1.DeletePropagationOrphan
	case o.has(metav1.FinalizerDeleteDependents), ownerWaits && len(g.dependents(o)) > 0:
		return metav1.DeletePropagationForeground
	}
	return metav1.DeletePropagationBackground
}

// deletion decides for an object whose deletion was requested.
func (g *graph) deletion(o *Object) Verdict {
	switch {
	case o.orphans():
		if dependents := g.dependents(o); len(dependents) > 0 {
			return Verdict{Waits: "dependents that are to stay: " + namesOf(dependents)}
		}
		kind, unlisted := g.unseenKind(o, false)
		if kind != "" {
			return Verdict{Waits: kind + " cannot be listed: some may be dependents that are to stay"}
		}
		if g.finishes && len(o.Finalizers) > 1 { // a dependent that is created before the owner is removed stays, too
			return Verdict{Waits: "finalizers of other programs: " + join(without(o.Finalizers, metav1.FinalizerOrphanDependents))}
		}
		if key, err := g.anyUnreadable(o); err != nil {
			return Verdict{Waits: fmt.Sprintf("%s may be a dependent that is to stay: %v", key, err)}
		}
		return g.release(o, metav1.FinalizerOrphanDependents, unlisted)
	case o.waits():
		blocking := slices.DeleteFunc(g.dependents(o), func(d *Object) bool { return !d.blocks(o) || g.reaches(d, o) })
		if len(blocking) > 0 {
			return Verdict{Waits: "dependents that are to be deleted first: " + namesOf(blocking)}
		}
		kind, unlisted := g.unseenKind(o, true)
		if kind != "" {
			return Verdict{Waits: kind + " cannot be listed: some may have to be deleted first"}
		}
		return g.release(o, metav1.FinalizerDeleteDependents, unlisted)
	case len(o.Finalizers) > 0:
		return Verdict{Waits: "finalizers of other programs: " + join(slices.Clone(o.Finalizers))}
	case g.finishes:
		return g.finish(o)
	}
	return Verdict{}
}

// finish removes an object that nothing holds. A host removes its own pods when they have stopped.
func (g *graph) finish(o *Object) Verdict {
	s := g.step(o, Remove, "its deletion was requested, and it has no finalizers")
	if host := o.host(); host != "" {
		node := g.missing(o, Owner{Type: nodeType, Name: host})
		if node.state != absent || len(g.owners[nodeIndex(host)]) > 0 {
			return Verdict{}
		}
		s.others = node.others
	}
	return Verdict{Step: s}
}

func without(finalizers []string, one string) []string {
	return slices.DeleteFunc(slices.Clone(finalizers), func(f string) bool { return f == one })
}

// release removes a finalizer. On etcd no object of any kind may have been created meanwhile.
func (g *graph) release(o *Object, finalizer string, unlisted []store.Kind) Verdict {
	s := g.step(o, Release, "no dependent is left that it waits for")
	s.Finalizer, s.unlisted = finalizer, unlisted
	return Verdict{Step: s}
}

func (g *graph) step(o *Object, do Do, reason string) *Step {
	return &Step{Key: o.Key, UID: o.UID, Revision: o.Version, Do: do, Reason: reason}
}

// namesOf are the names of objects, the first three.
func namesOf(objects []*Object) string {
	var names []string
	for _, o := range objects {
		names = append(names, o.String())
	}
	return join(names)
}

// blocks reports whether a foreground deletion of the owner waits for the object.
func (o *Object) blocks(owner *Object) bool {
	return slices.ContainsFunc(o.Owners, func(ref Owner) bool { return ref.Block && owner.is(ref, o.Namespace) })
}

// reaches reports whether an object waits for another one, directly or over others. Then the other one cannot wait
// for it.
func (g *graph) reaches(from, to *Object) bool {
	seen := map[*Object]bool{}
	var search func(*Object) bool
	search = func(o *Object) bool {
		if !o.waits() || seen[o] {
			return false
		}
		seen[o] = true
		return slices.ContainsFunc(g.dependents(o), func(d *Object) bool { return d.blocks(o) && (d == to || search(d)) })
	}
	return search(from)
}
