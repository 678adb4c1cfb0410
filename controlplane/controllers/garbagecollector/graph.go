package garbagecollector

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"unique"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"hostler.io/hostler/controlplane/store"
	"hostler.io/hostler/internal/loop"
)

// graph has the objects of a fleet with their owners and dependents, and what is to be done with each. It
// is safe for concurrent use.
type graph struct {
	changed loop.Signal // something may be due
	unseen  loop.Signal // something is to be read: see lookUp
	// finishes says that nobody else removes an object whose last finalizer has gone: there is no API server.
	finishes bool

	mu      sync.Mutex // guards what follows
	kinds   map[string]*kind
	objects map[Key]entry
	owners  map[identity][]*Object            // by Object.indexes; mostly one
	owning  map[identity]map[*Object]struct{} // by Owner.index of their owners
	// depends counts the references of each kind's objects to owners of a type.
	depends map[schema.GroupKind]map[string]int
	// orphaned are owners whose dependents were to stay, and who are gone. One that is seen late stays too.
	orphaned map[identity]struct{}
	marks    marks
	verdicts map[Key]Verdict // of objects that are to be decided again when a kind can be seen
	// deleted are owners that were seen to be deleted, as long as they have dependents: Nodes, by nodeIndex,
	// whose Events are deleted, but not those of a host that could never register; and others, by Object.index.
	// Their type may be deleted before their dependents.
	deleted  map[identity]bool
	lookups  map[Key]struct{}
	refusals map[Key]refusal
}

// identity is what a dependent knows of an owner. In an index it has no namespace: a reference has none, and many
// objects may have one UID, which a host chooses for what it writes.
type identity struct {
	of        schema.GroupKind
	namespace string
	name      string
	uid       types.UID
}

func (o *Object) identity() identity { return identity{o.Type, o.Namespace, o.Own, o.UID} }

// marks are what is to be decided again. Followers of all controllers wait while something is marked, so dependents and
// verdicts, which may be many, are marked one by one only by the next decision.
type marks struct {
	objects  map[*Object]struct{}
	owners   map[identity]struct{} // by Object.indexes: those that have changed. Their dependents are to be decided again
	verdicts bool                  // whether all objects with a verdict are
}

func newMarks() marks {
	return marks{objects: map[*Object]struct{}{}, owners: map[identity]struct{}{}}
}

// entry is an object, and the last list that it was in.
type entry struct {
	*Object
	list int
}

func newGraph(changed loop.Signal, finishes bool) *graph {
	return &graph{
		changed: changed, unseen: loop.NewSignal(), lookups: map[Key]struct{}{}, finishes: finishes, kinds: map[string]*kind{}, objects: map[Key]entry{},
		owners: map[identity][]*Object{}, owning: map[identity]map[*Object]struct{}{},
		depends: map[schema.GroupKind]map[string]int{}, orphaned: map[identity]struct{}{},
		marks: newMarks(), verdicts: map[Key]Verdict{}, deleted: map[identity]bool{},
		refusals: map[Key]refusal{},
	}
}

// add makes a kind known. Until it was listed, nothing is absent from it.
func (g *graph) add(k store.Kind, scope store.Scope) *follower {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.kinds[k.Name] == nil {
		g.kinds[k.Name] = &kind{Kind: k, sparse: scope == store.Deletions, unreadable: map[string]error{}, ofPeople: map[string]error{}}
	}
	g.decideAgain()
	f := &follower{g, g.kinds[k.Name], k}
	f.kind.source = store.NewSource(k, f)
	return f
}

// source returns a source of the objects of a kind, which replaces the one before.
func (g *graph) source(k *kind, to store.Follower) *store.Source {
	g.mu.Lock()
	defer g.mu.Unlock()
	k.source = store.NewSource(k.Kind, to)
	return k.source
}

// sources returns the sources of all kinds that can be followed, by name; false if the kinds are not known yet.
func (g *graph) sources() (list []store.Origin, known bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(g.kinds)) {
		if k := g.kinds[name]; k.err == nil {
			list = append(list, k.source)
		}
	}
	return list, len(g.kinds) > 0
}

// drop forgets a kind that exists no more, with its objects.
func (g *graph) drop(name string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for key := range g.objects {
		if key.Kind == name {
			g.remove(key)
		}
	}
	delete(g.kinds, name)
	g.decideAgain()
}

// failed notes why a kind cannot be followed; nil once it can.
func (g *graph) failed(name string, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if k := g.kinds[name]; k != nil {
		k.err = err
		g.decideAgain()
	}
}

// decideAgain notes that the objects with a verdict are to be marked: whether a kind can be seen changes nothing for an
// object all of whose owners are known. The caller holds mu.
func (g *graph) decideAgain() {
	g.marks.verdicts = true
	g.changed.Send()
}

// mark notes that an object is to be decided again, if it has owners or is being deleted. The caller holds
// mu.
func (g *graph) mark(o *Object) {
	if len(o.Owners) > 0 || o.Deleting {
		g.marks.objects[o] = struct{}{}
	} else {
		delete(g.verdicts, o.Key)
		delete(g.refusals, o.Key)
	}
}

// put takes in an object of a list. The caller holds mu.
func (g *graph) put(o *Object, list int) {
	before := g.objects[o.Key].Object
	if before != nil && before.UID != o.UID {
		g.remove(o.Key)
		before = nil
	}
	if before != nil && before.same(o) { // such as a heartbeat, which must cost little
		g.objects[o.Key] = entry{before, list}
		if before.Version != o.Version {
			before.Version = o.Version
			g.mark(before)
			g.changed.Send()
		}
		return
	}
	g.objects[o.Key] = entry{o, list}
	g.unlink(before)
	g.share(o)
	for _, index := range o.indexes() {
		g.owners[index] = append(g.owners[index], o)
		delete(g.deleted, index)
	}
	for _, index := range o.owning() {
		insert(g.owning, index, o)
	}
	for _, ref := range o.Owners {
		if g.depends[ref.Type] == nil {
			g.depends[ref.Type] = map[string]int{}
		}
		g.depends[ref.Type][o.Kind]++
	}
	if before != nil {
		g.forget(before)
	}
	g.mark(o)
	g.touch(o)
}

// forget drops the deleted owners of an object that have no dependents any more. The caller holds mu.
func (g *graph) forget(o *Object) {
	for _, index := range o.owning() {
		if g.owning[index] == nil {
			delete(g.deleted, index)
		}
	}
}

// delete removes an object whose deletion was seen. The caller holds mu.
func (g *graph) delete(key Key) {
	o := g.objects[key].Object
	g.remove(key)
	if o != nil && len(g.owning[o.index()]) > 0 {
		g.deleted[o.index()] = true
	}
}

// share replaces strings of an object by equal ones of other objects, to save memory: most objects are of
// few types and namespaces. The caller holds mu.
func (g *graph) share(o *Object) {
	shared := func(s *string) { *s = unique.Make(*s).Value() }
	shared(&o.Namespace)
	shared(&o.Type.Group)
	shared(&o.Type.Kind)
	for i := range o.Owners {
		shared(&o.Owners[i].Type.Group)
		shared(&o.Owners[i].Type.Kind)
	}
}

// remove takes an object out. The caller holds mu.
func (g *graph) remove(key Key) {
	o := g.objects[key].Object
	if o == nil {
		return
	}
	delete(g.objects, key)
	delete(g.verdicts, key)
	delete(g.refusals, key)
	if o.Type == nodeType && len(g.owning[nodeIndex(o.Own)]) > 0 {
		g.deleted[nodeIndex(o.Own)] = true
	}
	g.unlink(o)
	g.forget(o)
	if leases := g.kinds[store.Leases.Name]; leases != nil && leases.sparse && o.Type == nodeType {
		g.lookUp(Key{leases.Name, o.Own})
	}
}

// lookUp requests a read of an object that is not followed. The caller holds mu.
func (g *graph) lookUp(key Key) {
	g.lookups[key] = struct{}{}
	g.unseen.Send()
}

// takeLookups returns the objects that are to be read, sorted.
func (g *graph) takeLookups() []Key {
	g.mu.Lock()
	defer g.mu.Unlock()
	keys := slices.SortedFunc(maps.Keys(g.lookups), func(a, b Key) int { return strings.Compare(a.String(), b.String()) })
	clear(g.lookups)
	return keys
}

// lookedUp takes in an object that was read; nil if there is none.
func (g *graph) lookedUp(key Key, o store.Object) {
	g.mu.Lock()
	defer g.mu.Unlock()
	k := g.kinds[key.Kind]
	switch {
	case k == nil:
	case o == nil:
		g.remove(key)
	default:
		g.put(g.objectOf(key, o), k.lists)
	}
}

// again requests one more read of an object that is not followed.
func (g *graph) again(key Key) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if k := g.kinds[key.Kind]; k != nil && k.sparse {
		g.lookUp(key)
	}
}

// storeKind returns a kind by its name.
func (g *graph) storeKind(name string) (store.Kind, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	k := g.kinds[name]
	if k == nil {
		return store.Kind{}, false
	}
	return k.Kind, true
}

// unlink takes an object out of the indexes. The caller holds mu.
func (g *graph) unlink(o *Object) {
	if o == nil {
		return
	}
	g.touch(o)
	delete(g.marks.objects, o)
	for _, index := range o.indexes() {
		if left := slices.DeleteFunc(g.owners[index], func(other *Object) bool { return other == o }); len(left) > 0 {
			g.owners[index] = left
		} else {
			delete(g.owners, index)
		}
	}
	for _, index := range o.owning() {
		discard(g.owning, index, o)
	}
	for _, ref := range o.Owners {
		kinds := g.depends[ref.Type]
		if kinds[o.Kind]--; kinds[o.Kind] == 0 {
			delete(kinds, o.Kind)
		}
		if len(kinds) == 0 {
			delete(g.depends, ref.Type)
		}
	}
}

// touch marks the owners of an object that has changed, and its dependents. The caller holds mu.
func (g *graph) touch(o *Object) {
	for _, index := range o.indexes() {
		if len(g.owning[index]) > 0 {
			g.marks.owners[index] = struct{}{}
		}
	}
	for _, ref := range o.Owners {
		for _, owner := range g.owners[ref.index()] {
			if _, decided := g.verdicts[owner.Key]; decided || owner.Deleting {
				g.mark(owner)
			}
		}
	}
	g.changed.Send()
}

func insert(in map[identity]map[*Object]struct{}, index identity, o *Object) {
	if in[index] == nil {
		in[index] = map[*Object]struct{}{}
	}
	in[index][o] = struct{}{}
}

func discard(in map[identity]map[*Object]struct{}, index identity, o *Object) {
	delete(in[index], o)
	if len(in[index]) == 0 {
		delete(in, index)
	}
}

// mostAtOnce bounds how many objects and references are decided while followers wait, which is a millisecond or two:
// renewals of Leases wait with them.
const mostAtOnce = 1000

// decide decides for all objects that have changed, and returns what is due.
func (g *graph) decide() []Step {
	todo, due := g.takeDirty()
	for len(todo) > 0 {
		var more []Step
		todo, more = g.decideSome(todo)
		due = append(due, more...)
	}
	return due
}

// takeDirty returns the objects that have changed, and what is due with the others.
func (g *graph) takeDirty() (todo []*Object, due []Step) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for index := range g.marks.owners {
		for dependent := range g.owning[index] {
			g.mark(dependent)
		}
	}
	if g.marks.verdicts {
		for key := range g.verdicts {
			g.mark(g.objects[key].Object)
		}
	}
	positions, complete := g.positions()
	for key, v := range g.verdicts {
		if _, dirty := g.marks.objects[g.objects[key].Object]; !dirty && v.due(complete) {
			due = append(due, g.bind(*v.Step, positions))
		}
	}
	todo = slices.Collect(maps.Keys(g.marks.objects))
	g.marks = newMarks() // it was as large as the graph, after a list
	return todo, due
}

// decideSome decides for some of these objects, and returns the others. What is due is bound to how far the kinds are
// followed now: an object that changes before the others are decided is decided again.
func (g *graph) decideSome(todo []*Object) (left []*Object, due []Step) {
	g.mu.Lock()
	defer g.mu.Unlock()
	positions, complete := g.positions()
	for work := 0; len(todo) > 0 && work < mostAtOnce; todo = todo[1:] {
		o := todo[0]
		if g.objects[o.Key].Object != o { // it has been replaced or deleted
			continue
		}
		delete(g.marks.objects, o)
		owners := g.ownersOf(o)
		g.refuse(o, owners)
		v := g.verdict(o, owners)
		if v.fact() || v.again {
			g.verdicts[o.Key] = v
		} else {
			delete(g.verdicts, o.Key)
		}
		if v.due(complete) {
			due = append(due, g.bind(*v.Step, positions))
		}
		work += 1 + len(owners)
	}
	return todo, due
}

// bind adds to a step how far kinds must have been followed for it. The caller holds mu.
func (g *graph) bind(s Step, positions map[string]store.Position) Step {
	if s.Do == Release {
		s.unchanged, s.others = g.dependentKinds(s.Key, positions), g.leaseOf(s.Key)
	}
	for _, k := range s.within {
		at, known := positions[k.Name]
		if !known {
			at = positions[store.Objects.Name]
		}
		s.unchanged = append(s.unchanged, store.Position{Kind: k, Version: at.Version})
	}
	return s
}

// renew decides for the object of a step again, and returns the step as it is due now; false if it is not.
func (g *graph) renew(s Step) (Step, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	o := g.objects[s.Key].Object
	if o == nil || o.Version != s.Revision {
		return s, false
	}
	now := g.verdict(o, g.ownersOf(o)).Step
	positions, complete := g.positions()
	if now == nil || now.Do != s.Do || now.Finalizer != s.Finalizer || !complete {
		return s, false
	}
	return g.bind(*now, positions), true
}

// mostOrphaned bounds how many owners are remembered.
const mostOrphaned = 100_000

// orphans remembers an owner that is about to go without its dependents, where the write does not compare
// that none was created.
func (g *graph) orphans(key Key) {
	g.mu.Lock()
	defer g.mu.Unlock()
	o := g.objects[key].Object
	if g.finishes || o == nil {
		return
	}
	g.orphaned[o.identity()] = struct{}{}
	for other := range g.orphaned { // any but the newest, whose dependents may not be seen yet
		if len(g.orphaned) <= mostOrphaned {
			break
		}
		if other != o.identity() {
			delete(g.orphaned, other)
		}
	}
}

// refused forgets that an owner was about to go without its dependents.
func (g *graph) refused(key Key) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if o := g.objects[key].Object; o != nil {
		delete(g.orphaned, o.identity())
	}
}

// wasOrphaned reports whether an owner of an object in a namespace has gone without its dependents. The
// caller holds mu.
func (g *graph) wasOrphaned(ref Owner, namespace string) bool {
	_, there := g.orphaned[identity{ref.Type, namespace, ref.Name, ref.UID}]
	_, everywhere := g.orphaned[identity{ref.Type, "", ref.Name, ref.UID}]
	return there || everywhere
}

// dependentKinds are the kinds in which an owner can have dependents that were not seen yet. Where it
// takes a request to check a kind, these are the kinds that have dependents of such owners. An object
// without a namespace has no owner in one, so that 10,000 Nodes cost nothing then. On etcd, no Node belongs to an object.
// The caller holds mu.
func (g *graph) dependentKinds(owner Key, positions map[string]store.Position) []store.Position {
	var kinds []store.Position
	o := g.objects[owner]
	for name, p := range positions {
		p.ByPeople = g.finishes
		if o.Kind == store.Nodes.Name {
			p.Host = o.Name // no other host's objects can belong to it
		}
		if (g.finishes || g.depends[o.Type][name] > 0) && g.kinds[name].mayDepend(o.Object) {
			kinds = append(kinds, p)
		}
	}
	return kinds
}

// leaseOf is the state of the Lease of a Node, if changes of Leases are not followed. The caller holds mu.
func (g *graph) leaseOf(node Key) []store.Reference {
	leases := g.kinds[store.Leases.Name]
	if node.Kind != store.Nodes.Name || leases == nil || !leases.sparse {
		return nil
	}
	if known := g.objects[Key{leases.Name, node.Name}].Object; known != nil {
		return []store.Reference{{Kind: leases.Kind, Name: known.Name, UID: known.UID, Version: known.Version}}
	}
	return []store.Reference{{Kind: leases.Kind, Name: node.Name}}
}

// positions are how far the kinds were followed, and whether none is being listed. A kind that cannot be
// followed has no position: it holds up nothing but the dependents that are known. The caller holds mu.
func (g *graph) positions() (positions map[string]store.Position, complete bool) {
	positions, complete = map[string]store.Position{}, true
	for name, k := range g.kinds {
		switch {
		case k.sparse || k.err != nil:
		case k.position == "":
			complete = false
		default:
			positions[name] = store.Position{Kind: k.Kind, Version: k.position}
		}
	}
	return positions, complete
}

// Fact is an object about which there is something to report.
type Fact struct {
	Key
	Verdict
}

// report adds what is known to a Report.
func (g *graph) report(r *Report) {
	g.mu.Lock()
	defer g.mu.Unlock()
	r.Objects, r.Kinds, r.Unreadable = len(g.objects), map[string]error{}, map[string]error{}
	for key, v := range g.verdicts {
		if v.fact() {
			r.Facts = append(r.Facts, Fact{key, v})
		}
	}
	slices.SortFunc(r.Facts, func(a, b Fact) int { return cmp.Compare(a.String(), b.String()) })
	for name, k := range g.kinds {
		r.Kinds[name] = k.err
		for object, err := range k.unreadable {
			r.Unreadable[Key{name, object}.String()] = err
		}
	}
}
