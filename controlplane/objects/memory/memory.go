// Package memory is a store of objects in memory, for any number of clients in one process.
//
// It owns versions, times to live and watches. It refuses to know what the objects are, and
// where else they are kept.
package memory

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/objects"
)

// Options are what a Store can be told.
type Options struct {
	Type, Endpoint string
	// MaxEvents is how many Events are kept: the oldest is deleted for a new one. 0 is for
	// as many as there are.
	MaxEvents int
	// PageSize is how many objects a page of a list holds; 500 if 0.
	PageSize int
}

// Store keeps objects in memory. It works under testing/synctest. Use New.
type Store struct {
	o Options

	mu      sync.Mutex // guards what follows
	ends    bool       // objects end with their time to live
	last    uint64     // the latest version
	objects map[objects.Key]*entry
	watched map[objects.Key]chan struct{} // closed and removed with the next change of its object
	follow  func(objects.Kind)
}

// Object is one object of a Snapshot.
type Object struct {
	Key     objects.Key     `json:"key"`
	Version uint64          `json:"version"`
	Value   json.RawMessage `json:"value"` // not changed any more
	TTL     time.Duration   `json:"-"`
}

// entry is a stored object, which ends at a time unless that is zero.
type entry struct {
	value   []byte // not changed any more
	version uint64
	ttl     time.Duration
	ends    time.Time
}

var (
	_ objects.Store = (*Store)(nil)
	_ objects.Ender = (*Store)(nil)
)

// New returns an empty store, in which no object ends by itself.
func New(o Options) *Store {
	o.PageSize = cmp.Or(o.PageSize, 500)
	return &Store{o: o, objects: map[objects.Key]*entry{}, watched: map[objects.Key]chan struct{}{}, follow: func(objects.Kind) {}}
}

// End has objects end from now on that are not put again within their time to live.
func (s *Store) End(ends bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ends = ends
}

// Follow has changed called after each change of objects of a kind, one call at a time. It
// must not call the Store.
func (s *Store) Follow(changed func(objects.Kind)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.follow = changed
}

// Ends reports whether objects end by themselves.
func (s *Store) Ends() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ends
}

// Type returns the type of the Options.
func (s *Store) Type() string { return s.o.Type }

// Endpoint returns the endpoint of the Options.
func (s *Store) Endpoint() string { return s.o.Endpoint }

// Close does nothing.
func (s *Store) Close() error { return nil }

// Get implements objects.Store.
func (s *Store) Get(ctx context.Context, key objects.Key) (objects.Object, error) {
	if ctx.Err() != nil {
		return objects.Object{}, fmt.Errorf("get %s: %w", key, context.Cause(ctx))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	stored := s.object(key)
	if stored.Version == objects.None {
		return objects.Object{}, fmt.Errorf("get %s: %w", key, controlplane.ErrNotFound)
	}
	return stored, nil
}

// Put implements objects.Store.
func (s *Store) Put(ctx context.Context, key objects.Key, put objects.Put) (objects.Version, error) {
	if ctx.Err() != nil {
		return objects.None, fmt.Errorf("put %s: %w", key, context.Cause(ctx))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.compare("put", key, put.Instead); err != nil {
		return objects.None, err
	}
	if key.Kind == objects.Event && put.Instead == objects.None {
		s.freeSpace()
	}
	s.store(Object{Key: key, Value: bytes.Clone(put.Value), TTL: put.TTL})
	s.wake(key)
	return s.object(key).Version, nil
}

// freeSpace deletes the oldest Event where there are too many. The caller holds mu.
func (s *Store) freeSpace() {
	if events := s.list(objects.Event); s.o.MaxEvents > 0 && len(events) >= s.o.MaxEvents {
		s.remove(slices.MinFunc(events, func(a, b objects.Key) int {
			return cmp.Compare(s.objects[a].version, s.objects[b].version)
		}))
	}
}

// store keeps an object, under a version of its own. The caller holds mu.
func (s *Store) store(o Object) {
	if o.Version <= s.last {
		o.Version = s.last + 1
	}
	s.last = o.Version
	e := &entry{value: o.Value, version: o.Version, ttl: o.TTL}
	if o.TTL > 0 {
		e.ends = time.Now().Add(o.TTL)
	}
	s.objects[o.Key] = e
}

// Delete implements objects.Store.
func (s *Store) Delete(ctx context.Context, key objects.Key, version objects.Version) error {
	if ctx.Err() != nil {
		return fmt.Errorf("delete %s: %w", key, context.Cause(ctx))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if version != objects.None {
		if err := s.compare("delete", key, version); err != nil {
			return err
		}
	}
	s.remove(key)
	if key.Kind == objects.Node {
		s.remove(objects.Key{Kind: objects.Lease, Node: key.Node})
	}
	return nil
}

// remove deletes an object if it is there. The caller holds mu.
func (s *Store) remove(key objects.Key) {
	if _, there := s.objects[key]; there {
		delete(s.objects, key)
		s.wake(key)
	}
}

// List implements objects.Store.
func (s *Store) List(ctx context.Context, kind objects.Kind, node, page string) (found []objects.Object, next string, err error) {
	if ctx.Err() != nil {
		return nil, "", fmt.Errorf("list %s: %w", kind, context.Cause(ctx))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	keys := s.list(kind)
	slices.SortFunc(keys, func(a, b objects.Key) int { return cmp.Compare(a.String(), b.String()) })
	for _, key := range keys {
		stored := s.object(key)
		switch {
		case stored.Version == objects.None, node != "" && key.Node != node, key.String() <= page:
		case len(found) == s.o.PageSize:
			return found, found[len(found)-1].Key.String(), nil
		default:
			found = append(found, stored)
		}
	}
	return found, "", nil
}

// list are the keys of a kind in no order. The caller holds mu.
func (s *Store) list(kind objects.Kind) []objects.Key {
	var keys []objects.Key
	for key := range s.objects {
		if key.Kind == kind {
			keys = append(keys, key)
		}
	}
	return keys
}

// Watch implements objects.Store.
func (s *Store) Watch(ctx context.Context, key objects.Key, seen chan<- objects.Object) error {
	first := true
	var sent objects.Version
	for {
		state, ends, changed := s.state(key)
		var news chan<- objects.Object
		if first || state.Version != sent {
			news = seen
		}
		end, stop := at(ends)
		select {
		case <-ctx.Done():
			stop()
			return fmt.Errorf("watch %s: %w", key, context.Cause(ctx))
		case news <- state:
			first, sent = false, state.Version
		case <-changed:
		case <-end:
		}
		stop()
	}
}

// at is a channel that receives at that time; never if it is zero.
func at(when time.Time) (<-chan time.Time, func()) {
	if when.IsZero() {
		return nil, func() {}
	}
	timer := time.NewTimer(time.Until(when))
	return timer.C, func() { timer.Stop() }
}

// state is the object as it is, when it ends, and what is closed with the next change.
func (s *Store) state(key objects.Key) (state objects.Object, ends time.Time, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	state = s.object(key)
	if e := s.objects[key]; e != nil && s.ends {
		ends = e.ends
	}
	if s.watched[key] == nil {
		s.watched[key] = make(chan struct{})
	}
	return state, ends, s.watched[key]
}

// object is what is stored under a key; with version None if nothing is. The caller
// holds mu.
func (s *Store) object(key objects.Key) objects.Object {
	e, found := s.objects[key]
	if found && s.ends && !e.ends.IsZero() && !time.Now().Before(e.ends) {
		delete(s.objects, key)
		found = false
	}
	if !found {
		return objects.Object{Key: key}
	}
	return objects.Object{Key: key, Value: bytes.Clone(e.value), Version: objects.Version(strconv.FormatUint(e.version, 10))}
}

// compare returns a conflict unless that version is stored. The caller holds mu.
func (s *Store) compare(call string, key objects.Key, version objects.Version) error {
	stored := s.object(key)
	if stored.Version == version {
		return nil
	}
	return &objects.ConflictError{Stored: stored, Err: fmt.Errorf("%s %s: %w: version is %q, not %q", call, key, controlplane.ErrConflict, stored.Version, version)}
}

// wake has watches of an object look again. The caller holds mu.
func (s *Store) wake(key objects.Key) {
	if changed := s.watched[key]; changed != nil {
		close(changed)
		delete(s.watched, key)
	}
	s.follow(key.Kind)
}

// Snapshot returns the objects of these kinds, the one that was put longest ago first.
func (s *Store) Snapshot(kinds ...objects.Kind) []Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	snapshot := []Object{}
	for key, e := range s.objects {
		if slices.Contains(kinds, key.Kind) {
			snapshot = append(snapshot, Object{Key: key, Version: e.version, Value: e.value, TTL: e.ttl})
		}
	}
	slices.SortFunc(snapshot, byVersion)
	return snapshot
}

func byVersion(a, b Object) int { return cmp.Compare(a.Version, b.Version) }

// Restore has these objects be all that there is. Each has a version that none had in this
// Store: its own where the Store is new, as after a restart, and else another, as by a backup.
// Its time to live begins now.
func (s *Store) Restore(snapshot []Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key := range maps.Clone(s.objects) {
		s.remove(key)
	}
	for _, o := range slices.SortedFunc(slices.Values(snapshot), byVersion) {
		s.store(o)
		s.wake(o.Key)
	}
}
