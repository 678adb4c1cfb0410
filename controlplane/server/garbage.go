package server

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controllers/executor"
	"hostler.io/hostler/controlplane/controllers/garbagecollector"
	"hostler.io/hostler/controlplane/server/answer"
	"hostler.io/hostler/controlplane/store"
)

const (
	// hintUndecided is for an object whose owners cannot be read.
	hintUndecided = "correct its ownerReferences, or delete it, if nobody needs it"
	// hintUnreadable is for an object that cannot be read.
	hintUnreadable = "fix or delete it in the store"
	// hintUnlisted is for a kind that cannot be listed.
	hintUnlisted = "check its conversion webhook or aggregated API; delete the CustomResourceDefinition or APIService if nobody needs it"
)

// garbagePlan returns what the garbage collector does now, and what it waits for.
func (s *Server) garbagePlan() answer.GarbagePlan {
	r, c := s.garbage.Report(), s.controllerNamed(garbagecollector.Name)
	p := answer.GarbagePlan{
		State: c.state(), Waits: c.waits(r.Waits), Objects: r.Objects,
		Facts: []answer.GarbageFact{}, Unreadable: []answer.Problem{},
	}
	if !r.At.IsZero() {
		p.At = r.At.UTC().Format(time.RFC3339)
	}
	for _, fact := range r.Facts {
		f := answer.GarbageFact{Object: clean(fact.String())}
		switch {
		case fact.Step != nil:
			f.State, f.Action, f.Reason = answer.Due, clean(fact.Step.Action()), clean(fact.Step.Reason)
		case fact.Waits != "":
			f.State, f.Reason = answer.Waits, clean(fact.Waits)
		default:
			f.State, f.Reason, f.Hint = answer.Undecided, clean(fact.Undecided), hintUndecided
		}
		if s.o.Store.EndsLeases() && heldByHost(fact) {
			f.Hint = "if its host delays this by writing all the time: `hostler fleet delete " + f.Object + " --cascade=background`"
		}
		if err := r.Failing[fact.String()]; err != nil {
			f.Reason, f.Hint = clean(fmt.Sprintf("%s; cannot be written: %v", f.Reason, err)), s.hintUnwritten(garbagecollector.Name, err)
		}
		p.Facts = append(p.Facts, f)
	}
	p.Kinds = unlisted(r)
	for _, object := range slices.Sorted(maps.Keys(r.Unreadable)) {
		p.Unreadable = append(p.Unreadable, answer.Problem{Object: clean(object), Message: clean(whyUnreadable(r.Unreadable[object])), Hint: hintUnreadable})
	}
	return p
}

// heldByHost reports whether a host can hold up the end of the deletion: that of its own Node, which waits for its writes.
func heldByHost(f garbagecollector.Fact) bool {
	return f.Kind == store.Nodes.Name && (f.Waits != "" || f.Step != nil && f.Step.Do == garbagecollector.Release)
}

// whyUnreadable returns the cause of an error of an unreadable object, without the parts that are
// shown elsewhere.
func whyUnreadable(err error) string {
	text := strings.TrimSuffix(err.Error(), ": "+hintUnreadable)
	if _, cause, found := strings.Cut(text, store.ErrUnreadable.Error()+": "); found {
		return cause
	}
	return text
}

// unlisted returns the kinds that cannot be listed. Those without a right to list them are one problem:
// without its manifest, the collector lacks the right for almost all kinds.
func unlisted(r garbagecollector.Report) []answer.Problem {
	list, refused := []answer.Problem{}, []string(nil)
	for _, name := range slices.Sorted(maps.Keys(r.Kinds)) {
		switch err := r.Kinds[name]; {
		case errors.Is(err, controlplane.ErrForbidden):
			refused = append(refused, name)
		case err != nil:
			list = append(list, answer.Problem{Object: clean(name), Message: clean("this kind cannot be listed, so objects that such objects own stay: " + err.Error()), Hint: hintUnlisted})
		}
	}
	if len(refused) == 0 {
		return list
	}
	object := refused[0]
	if more := len(refused) - 1; more > 0 {
		object += fmt.Sprintf(" and other kinds: %d", more)
	}
	message := "the server has no right to list and watch them, so objects that such objects own stay: " + r.Kinds[refused[0]].Error()
	return append(list, answer.Problem{Object: clean(object), Message: clean(message), Hint: hintRights(garbagecollector.Name)})
}

// mostUndecided is the maximum number of undecided objects that are named.
const mostUndecided = 20

// undecided returns the kinds that cannot be read, and the objects that the collector cannot decide
// about.
func undecided(r garbagecollector.Report) []answer.Problem {
	list := unlisted(r)
	facts := slices.DeleteFunc(slices.Clone(r.Facts), func(f garbagecollector.Fact) bool { return f.Undecided == "" })
	facts = executor.InTurn(facts, func(f garbagecollector.Fact) string { return partOf(f.String()) })
	for _, fact := range facts[:min(len(facts), mostUndecided)] {
		list = append(list, answer.Problem{Object: clean(fact.String()), Message: clean(fact.Undecided), Hint: hintUndecided})
	}
	if more := len(facts) - mostUndecided; more > 0 {
		list[len(list)-1].Message += fmt.Sprintf("; the owners of %d more objects cannot be seen", more)
	}
	return list
}

// partOf returns the host or namespace that an object belongs to, as its name shows: n of nodes/n, events/n/e and
// pods/n/shop/web. One with many objects must not hide the others.
func partOf(object string) string {
	if parts := strings.SplitN(object, "/", 3); len(parts) > 1 {
		return parts[1]
	}
	return object
}

// recordRefusal records an Event about an object with an impossible owner, as Kubernetes' collector
// does. On etcd, Events are about Nodes, which have no owners.
func (s *Controllers) recordRefusal(r garbagecollector.Refusal) {
	if s.o.Store.EndsLeases() {
		return
	}
	about := corev1.ObjectReference{Kind: r.Type.Kind, APIVersion: r.APIVersion, Namespace: r.Namespace, Name: r.Own, UID: r.UID}
	if r.Kind == store.Nodes.Name {
		about = controlplane.NodeReference(r.Own)
	}
	s.events.Record(about, corev1.EventTypeWarning, "OwnerRefInvalidNamespace", r.Why)
}
