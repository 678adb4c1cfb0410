package garbagecollector

import "hostler.io/hostler/controlplane/store"

// kind is how far a kind is known.
type kind struct {
	store.Kind
	// sparse says that only deletions are followed: changes and new objects are not seen.
	sparse     bool
	err        error            // why it cannot be followed now
	position   string           // up to which version; empty while it is listed
	lists      int              // that were started
	synced     int              // and read to their end
	source     *store.Source    // its follower
	unreadable map[string]error // by name
	ofPeople   map[string]error // those of unreadable that no host writes: a host may write many
}

// mayDepend reports whether objects of the kind can have an owner: one in a namespace has no dependents
// without one.
func (k *kind) mayDepend(owner *Object) bool {
	return owner.Namespace == "" || k.Namespace != "" || k.Kind.NameOf != nil || k.Nested
}

// mayBelongTo returns the unreadable objects that may belong to an owner: what a host writes belongs to a Node alone.
func (k *kind) mayBelongTo(owner *Object) map[string]error {
	switch {
	case !k.mayDepend(owner):
		return nil
	case owner.Type == nodeType:
		return k.unreadable
	}
	return k.ofPeople
}

// follower takes in the objects of one kind.
type follower struct {
	g    *graph
	kind *kind
	as   store.Kind // in which version it is followed
}

var _ store.Tracker = (*follower)(nil)

// synced is how many lists were read to their end.
func (f *follower) synced() int {
	f.g.mu.Lock()
	defer f.g.mu.Unlock()
	return f.kind.synced
}

// Begin implements store.Follower.
func (f *follower) Begin() {
	f.g.mu.Lock()
	defer f.g.mu.Unlock()
	f.kind.lists++
	f.kind.position = ""
	clear(f.kind.unreadable)
	clear(f.kind.ofPeople)
}

// Set implements store.Follower.
func (f *follower) Set(name string, o store.Object) {
	f.g.mu.Lock()
	defer f.g.mu.Unlock()
	f.readable(name)
	f.g.put(f.g.objectOf(Key{f.kind.Name, name}, o), f.kind.lists)
}

// readable notes that there is no object of that name any more that cannot be read. The caller holds mu.
func (f *follower) readable(name string) {
	if f.kind.unreadable[name] != nil {
		delete(f.kind.unreadable, name)
		delete(f.kind.ofPeople, name)
		f.g.decideAgain()
	}
}

// Unreadable implements store.Follower. What was known of the object stays known.
func (f *follower) Unreadable(name string, err error) {
	f.g.mu.Lock()
	defer f.g.mu.Unlock()
	key := Key{f.kind.Name, name}
	f.kind.unreadable[name] = err
	if key.writer() == "" {
		f.kind.ofPeople[name] = err
	}
	if f.kind.position != "" {
		f.g.decideAgain() // it may be an owner
	}
	if known := f.g.objects[key]; known.Object != nil {
		f.g.objects[key] = entry{known.Object, f.kind.lists}
	}
}

// Delete implements store.Follower.
func (f *follower) Delete(name string) {
	f.g.mu.Lock()
	defer f.g.mu.Unlock()
	f.readable(name)
	f.g.delete(Key{f.kind.Name, name})
}

// Synced implements store.Follower.
func (f *follower) Synced() {
	f.g.mu.Lock()
	defer f.g.mu.Unlock()
	for key, e := range f.g.objects {
		if key.Kind == f.kind.Name && e.list != f.kind.lists {
			f.g.remove(key)
		}
	}
	f.kind.synced++
	f.kind.err = nil
	f.kind.Kind = f.as // the version that can be read is written, too
}

// Reached implements store.Tracker.
func (f *follower) Reached(version string) {
	f.g.mu.Lock()
	defer f.g.mu.Unlock()
	listed := f.kind.position == ""
	f.kind.position = version
	if listed {
		f.g.decideAgain() // what waited for the list can go on
	}
}
