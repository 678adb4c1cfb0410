package storetest

import (
	"context"
	"errors"
	"sync"
	"time"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/store"
)

// what is a method of a Follower.
type what string

const (
	began      what = "Begin"
	set        what = "Set"
	unreadable what = "Unreadable"
	deleted    what = "Delete"
	synced     what = "Synced"
	reached    what = "Reached" // of a Tracker
)

// call is one call of a Follower.
type call struct {
	what   what
	name   string
	object store.Object // of Set
	err    error        // of Unreadable
}

// follower records its calls.
type follower struct {
	mu      sync.Mutex // guards the fields below
	calls   []call
	changed chan struct{} // closed and replaced at each call
}

var _ store.Follower = (*follower)(nil)

func newFollower() *follower { return &follower{changed: make(chan struct{})} }

func (f *follower) record(c call) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, c)
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *follower) Begin()                            { f.record(call{what: began}) }
func (f *follower) Set(name string, o store.Object)   { f.record(call{set, name, o, nil}) }
func (f *follower) Unreadable(name string, err error) { f.record(call{unreadable, name, nil, err}) }
func (f *follower) Delete(name string) {
	f.record(call{deleted, name, nil, nil})
}
func (f *follower) Synced() { f.record(call{what: synced}) }

// next returns the first call that was not taken yet, and a channel that a later call closes.
func (f *follower) next() (c call, found bool, changed <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.calls) == 0 {
		return call{}, false, f.changed
	}
	c, f.calls = f.calls[0], f.calls[1:]
	return c, true, f.changed
}

// follows is a Follow in progress.
type follows struct {
	*follower
	b     *bench
	stop  context.CancelFunc
	ended chan error
}

func (b *bench) follow(kind store.Kind, scope store.Scope) *follows {
	f := newFollower()
	return b.followTo(kind, scope, f, f)
}

// followTo starts a Follow to a Follower that records its calls.
func (b *bench) followTo(kind store.Kind, scope store.Scope, to store.Follower, record *follower) *follows {
	ctx, stop := context.WithCancel(b.ctx)
	f := &follows{record, b, stop, make(chan error, 1)}
	go func() { f.ended <- b.Store.Follow(ctx, kind, scope, to) }()
	b.Cleanup(stop)
	return f
}

// first takes the next call.
func (f *follows) first() call {
	f.b.Helper()
	for {
		c, found, changed := f.next()
		if found {
			return c
		}
		select {
		case <-changed:
		case err := <-f.ended:
			f.b.Fatalf("Follow() = %v, want another call", err)
		case <-f.b.ctx.Done():
			f.b.Fatalf("no other call: %v", context.Cause(f.b.ctx))
		}
	}
}

// until takes calls up to the one of that method and name, and returns it. It passes earlier calls
// to skip.
func (f *follows) until(w what, name string, skip ...func(call)) call {
	f.b.Helper()
	f.b.Logf("waiting for %s(%q)", w, name) // printed if the check fails
	for {
		c := f.first()
		if c.what == w && c.name == name {
			return c
		}
		for _, s := range skip {
			s(c)
		}
	}
}

// end ends the Follow by its context.
func (f *follows) end() {
	f.b.Helper()
	f.stop()
	select {
	case err := <-f.ended:
		if !errors.Is(err, context.Canceled) {
			f.b.Errorf("Follow() = %v, want an error that is %q", err, context.Canceled)
		}
	case <-f.b.ctx.Done():
		f.b.Fatalf("Follow() whose context has ended does not end: %v", context.Cause(f.b.ctx))
	}
}

func checkFollow(b *bench, kind store.Kind) {
	b.put(store.Nodes, newNode("a"))
	b.put(store.Nodes, newNode("b"))
	b.put(store.Leases, newLease("a", time.Hour))
	f := b.follow(kind, store.AllChanges)
	if c := f.first(); c.what != began {
		b.Errorf("first call of a follow = %s, want %s", c.what, began)
	}
	listed := map[string]bool{}
	f.until(synced, "", func(c call) {
		listed[c.name] = true
		if c.what != set {
			b.Errorf("call in a list = %s(%q), want %s", c.what, c.name, set)
			return
		}
		if stored := b.node(c.name); c.object.GetResourceVersion() != stored.ResourceVersion || c.object.GetObjectKind().GroupVersionKind() != store.Nodes.GVK {
			b.Errorf("listed = %v, want %v", c.object, stored)
		}
	})
	if len(listed) != 2 || !listed["a"] || !listed["b"] {
		b.Errorf("listed = %v, want a and b", listed)
	}
	b.put(store.Nodes, newNode("c"))
	f.until(set, "c")
	stored := b.update(store.Nodes, "a", store.Preconditions{}, "1")
	if c := f.until(set, "a"); c.object.GetResourceVersion() != stored.GetResourceVersion() || c.object.GetAnnotations()[mark] != "1" {
		b.Errorf("reported after an update = %v, want %v", c.object, stored)
	}
	if err := b.Store.Delete(b.ctx, store.Nodes, "a", store.Preconditions{}, ""); err != nil {
		b.Fatal(err)
	}
	f.until(deleted, "a")
	b.put(store.Nodes, newNode("a"))
	if c := f.until(set, "a"); c.object.GetUID() == stored.GetUID() {
		b.Errorf("UID of a node that was created again = %s, want another one", stored.GetUID())
	}
	f.end()
}

func checkFollowDeletions(b *bench) {
	b.put(store.Leases, newLease("a", time.Hour))
	f := b.follow(store.Leases, store.Deletions)
	f.until(synced, "")
	b.put(store.Leases, newLease("b", time.Hour))
	b.update(store.Leases, "a", store.Preconditions{}, "1")
	for _, name := range []string{"a", "b"} {
		if err := b.Store.Delete(b.ctx, store.Leases, name, store.Preconditions{}, ""); err != nil {
			b.Fatal(err)
		}
	}
	f.until(deleted, "a")
	f.until(deleted, "b")
	f.end()
}

func checkUnreadable(b *bench) {
	for _, name := range []string{"a", "c"} {
		b.put(store.Nodes, newNode(name))
	}
	if err := b.PutUnreadable(b.ctx, store.Nodes, "b"); err != nil {
		b.Fatal(err)
	}
	f := b.follow(store.Nodes, store.AllChanges)
	seen, listed := map[string]what{}, ""
	f.until(synced, "", func(c call) {
		if seen[c.name] = c.what; c.what == unreadable {
			listed = b.version(c.err)
		}
	})
	if seen["a"] != set || seen["b"] != unreadable || seen["c"] != set {
		b.Errorf("calls of the list = %v, want a and c set, and b unreadable", seen)
	}
	_, err := b.Store.Get(b.ctx, store.Nodes, "b")
	if found := b.version(err); found != listed {
		b.Errorf("version of what cannot be read = %s as listed, %s as read, want the same", listed, found)
	}
	requires := func(version string) store.Preconditions {
		return store.Preconditions{Others: []store.Reference{{Kind: store.Nodes, Name: "b", Version: version}}}
	}
	b.update(store.Nodes, "c", requires(listed), "0")
	b.refused(b.Store, "c", requires("1"), "although another object, which cannot be read, has another version", controlplane.ErrConflict)
	b.refused(b.Store, "c", requires(""), "although another object exists, which cannot be read", controlplane.ErrConflict)
	// After this, a store may have to list again.
	if err := b.PutUnreadable(b.ctx, store.Nodes, "a"); err != nil {
		b.Fatal(err)
	}
	f.until(unreadable, "a")
	b.update(store.Nodes, "c", store.Preconditions{}, "1")
	for marked := ""; marked != "1"; { // an earlier list may still be reported
		marked = f.until(set, "c").object.GetAnnotations()[mark]
	}
	if b.Store.EndsLeases() {
		b.refused(b.Store, "c", store.Preconditions{Unreadable: true}, "although it can be read", controlplane.ErrConflict)
	}
	if err := b.Store.Delete(b.ctx, store.Nodes, "b", store.Preconditions{Unreadable: true}, ""); err != nil {
		b.Errorf("Delete() of what cannot be read = %v, want no error", err)
	}
	f.gone("b")
	f.end()
}

// version returns the version in the error of an object that cannot be read.
func (b *bench) version(err error) string {
	b.Helper()
	unreadable, is := errors.AsType[*store.UnreadableError](err)
	if !is || unreadable.Version == "" {
		b.Fatalf("error of an object that cannot be read = %v, want a version in it", err)
	}
	return unreadable.Version
}

// gone takes calls until the object is deleted, or until a list without it ends.
func (f *follows) gone(name string) {
	f.b.Helper()
	listing, listed := false, false
	for {
		switch c := f.first(); {
		case c.what == deleted && c.name == name, c.what == synced && listing && !listed:
			return
		case c.what == began:
			listing, listed = true, false
		case c.name == name:
			listed = true
		}
	}
}

func checkLeaseEnds(b *bench) {
	b.put(store.Leases, newLease("dead", ttl))
	b.put(store.Leases, newLease("alive", time.Hour))
	if !b.Store.EndsLeases() {
		b.get(store.Leases, "dead")
		return
	}
	f := b.follow(store.Leases, store.Deletions)
	f.until(synced, "")
	b.put(store.Leases, newLease("renewed", ttl))
	b.put(store.Leases, newLease("renewed", time.Hour))
	b.put(store.Leases, newLease("late", ttl)) // dead may have ended before the list
	f.until(deleted, "late")
	b.get(store.Leases, "alive")
	b.get(store.Leases, "renewed")
	f.end()
}
