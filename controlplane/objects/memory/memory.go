// Package memory is a store of objects in memory, for any number of clients in one process.
//
// It owns versions, TTLs and watches. It does not know what the objects are, or where else they are
// stored.
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

// Options configure a Store.
type Options struct {
	Type, Endpoint string
	// MaxEvents is the maximum number of Events: for a new one, the oldest is deleted. 0 means no
	// limit.
	MaxEvents int
	// PageSize is the number of objects in a page of a list; 500 if 0.
	PageSize int
}

// Store stores objects in memory. It works under testing/synctest. Use New.
type Store struct {
	o Options

	mu      sync.Mutex // guards the fields below
	ends    bool       // objects are deleted after their TTL
	last    uint64     // the latest version
	objects map[objects.Key]*entry
	watched map[objects.Key]chan struct{} // closed and removed at the next change of the object
	follow  func(objects.Kind)
}

// Object is one object of a Snapshot.
type Object struct {
	Key     objects.Key     `json:"key"`
	Version uint64          `json:"version"`
	Value   json.RawMessage `json:"value"` // immutable
	TTL     time.Duration   `json:"-"`
}

// entry is a stored object. A zero time means that it does not expire.
type entry struct {
	value   []byte // immutable
	version uint64
	ttl     time.Duration
	ends    time.Time
}

var (
	_ objects.Store = (*Store)(nil)
	_ objects.Ender = (*Store)(nil)
)

// New returns an empty store in which no object expires.
func New(o Options) *Store {
	o.PageSize = cmp.Or(o.PageSize, 500)
	return &Store{o: o, objects: map[objects.Key]*entry{}, watched: map[objects.Key]chan struct{}{}, follow: func(objects.Kind) {}}
}

// End makes objects expire from now on if they are not put again within their TTL.
func (s *Store) End(ends bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ends = ends
}

// Follow sets a function that is called after each change of objects of a kind, one call at a time.
// It must not call the Store.
func (s *Store) Follow(changed func(objects.Kind)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.follow = changed
}

// Ends reports whether objects expire.
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

// freeSpace deletes the oldest Event if there are too many. The caller holds mu.
func (s *Store) freeSpace() {
	if events := s.list(objects.Event); s.o.MaxEvents > 0 && len(events) >= s.o.MaxEvents {
		s.remove(slices.MinFunc(events, func(a, b objects.Key) int {
			return cmp.Compare(s.objects[a].version, s.objects[b].version)
		}))
	}
}

// store stores an object under a new version. The caller holds mu.
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

// remove deletes an object if it exists. The caller holds mu.
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

// list returns the keys of a kind in no order. The caller holds mu.
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

// at returns a channel that receives at that time; never if it is zero.
func at(when time.Time) (<-chan time.Time, func()) {
	if when.IsZero() {
		return nil, func() {}
	}
	timer := time.NewTimer(time.Until(when))
	return timer.C, func() { timer.Stop() }
}

// state returns the object, when it expires, and a channel that its next change closes.
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

// object returns the object of a key; with version None if there is none. The caller holds mu.
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

// wake makes the watches of an object check it again. The caller holds mu.
func (s *Store) wake(key objects.Key) {
	if changed := s.watched[key]; changed != nil {
		close(changed)
		delete(s.watched, key)
	}
	s.follow(key.Kind)
}

// Snapshot returns the objects of these kinds, the least recently put first.
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

// Restore replaces all objects by these. A new Store keeps their versions, as after a restart. A
// Store that has had objects gives them new versions, as after a restored backup. Their TTL starts
// now.
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
