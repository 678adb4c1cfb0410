// Package objectstest is what stores of objects, and the client over them, are tested
// with: Store, one in memory that fails on demand and can be set back as by a restored
// backup, and a suite of what every objects.Store promises.
package objectstest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/faulttest"
	"hostler.io/hostler/controlplane/objects"
)

// pageSize is how many objects a page holds.
const pageSize = 7

// Store keeps objects in memory, for any number of clients. It works under
// testing/synctest. Use New.
type Store struct {
	faults faulttest.Book[Call, Fault]

	mu      sync.Mutex // guards what follows
	age     int        // how often it was set back
	changes int        // since it is as old as it is
	objects map[objects.Key]entry
	changed chan struct{} // closed and replaced with each change of an object or a fault
}

// entry is a stored object, which ends at a time unless that is zero.
type entry struct {
	value   []byte
	version objects.Version
	ttl     time.Duration
	ends    time.Time
}

var _ objects.Store = (*Store)(nil)

// New returns an empty store without faults.
func New() *Store {
	return &Store{
		objects: map[objects.Key]entry{},
		changed: make(chan struct{}),
	}
}

// Type returns "objectstest".
func (s *Store) Type() string { return "objectstest" }

// Endpoint returns "memory".
func (s *Store) Endpoint() string { return "memory" }

// Close does nothing.
func (s *Store) Close() error { return nil }

// Get implements objects.Store.
func (s *Store) Get(ctx context.Context, key objects.Key) (objects.Object, error) {
	fault, err := s.call(ctx, Get, key.String())
	if err != nil {
		return objects.Object{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	stored := s.object(key)
	if stored.Version == objects.None {
		return objects.Object{}, fmt.Errorf("get %s: %w", key, controlplane.ErrNotFound)
	}
	return stored, fault.answer(Get, key)
}

// Put implements objects.Store.
func (s *Store) Put(ctx context.Context, key objects.Key, put objects.Put) (objects.Version, error) {
	fault, err := s.call(ctx, Put, key.String())
	if err != nil {
		return objects.None, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.compare(fault, Put, key, put.Instead); err != nil {
		return objects.None, err
	}
	version := s.store(key, put.Value, put.TTL)
	if err := fault.answer(Put, key); err != nil {
		return objects.None, err
	}
	return version, nil
}

// Delete implements objects.Store.
func (s *Store) Delete(ctx context.Context, key objects.Key, version objects.Version) error {
	fault, err := s.call(ctx, Delete, key.String())
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if version != objects.None {
		if err := s.compare(fault, Delete, key, version); err != nil {
			return err
		}
	}
	delete(s.objects, key)
	s.wake()
	if key.Kind != objects.Node {
		return fault.answer(Delete, key)
	}
	if fault.LeaseStays {
		return fmt.Errorf("delete %s: %w: %w", key, controlplane.ErrLeaseStays, controlplane.ErrUnavailable)
	}
	delete(s.objects, objects.Key{Kind: objects.Lease, Node: key.Node})
	return fault.answer(Delete, key)
}

// List implements objects.Store.
func (s *Store) List(ctx context.Context, kind objects.Kind, node, page string) (list []objects.Object, next string, err error) {
	fault, err := s.call(ctx, List, string(kind))
	if err != nil {
		return nil, "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	keys := slices.SortedFunc(maps.Keys(s.objects), func(a, b objects.Key) int { return cmp.Compare(a.String(), b.String()) })
	for _, key := range keys {
		stored := s.object(key)
		switch {
		case stored.Version == objects.None, key.Kind != kind, node != "" && key.Node != node, key.String() <= page:
		case len(list) == pageSize:
			return list, list[pageSize-1].Key.String(), nil
		default:
			list = append(list, stored)
		}
	}
	return list, "", fault.answer(List, objects.Key{Kind: kind, Node: node})
}

// Watch implements objects.Store.
func (s *Store) Watch(ctx context.Context, key objects.Key, seen chan<- objects.Object) error {
	if _, err := s.call(ctx, Watch, key.String()); err != nil {
		return err
	}
	first := true
	var sent objects.Version
	for {
		state, ends, fault, changed := s.look(key)
		switch {
		case fault.Hang:
			<-ctx.Done()
		case fault.Err != nil:
			return fmt.Errorf("watch %s: %w", key, fault.Err)
		}
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

// at is a channel that tells when it is that time; never if it is zero.
func at(when time.Time) (<-chan time.Time, func()) {
	if when.IsZero() {
		return nil, func() {}
	}
	timer := time.NewTimer(time.Until(when))
	return timer.C, func() { timer.Stop() }
}

// look is the object as it is, when it ends, what befalls watches, and what is closed
// with the next change.
func (s *Store) look(key objects.Key) (state objects.Object, ends time.Time, fault Fault, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	state = s.object(key)
	return state, s.objects[key].ends, s.faults.Under(Watch), s.changed
}

// object is what is stored under a key; with version None if nothing is. The caller
// holds mu.
func (s *Store) object(key objects.Key) objects.Object {
	e, found := s.objects[key]
	if found && !e.ends.IsZero() && !time.Now().Before(e.ends) {
		delete(s.objects, key)
		found = false
	}
	if !found {
		return objects.Object{Key: key}
	}
	return objects.Object{Key: key, Value: bytes.Clone(e.value), Version: e.version}
}

// compare returns a conflict unless that version is stored. The caller holds mu.
func (s *Store) compare(fault Fault, call Call, key objects.Key, version objects.Version) error {
	stored := s.object(key)
	if fault.Conflict && stored.Version != objects.None { // somebody else comes first, and changes nothing else
		e := s.objects[key]
		stored.Version = s.store(key, e.value, e.ttl)
	}
	if stored.Version == version {
		return nil
	}
	return &objects.ConflictError{Stored: stored, Err: fmt.Errorf("%s %s: %w: version is %q, not %q", call, key, controlplane.ErrConflict, stored.Version, version)}
}

// store puts a value under a key, and gives it a version. The caller holds mu.
func (s *Store) store(key objects.Key, value []byte, ttl time.Duration) objects.Version {
	s.changes++
	e := entry{value: bytes.Clone(value), version: s.version(strconv.Itoa(s.changes)), ttl: ttl}
	if ttl > 0 {
		e.ends = time.Now().Add(ttl)
	}
	s.objects[key] = e
	s.wake()
	return e.version
}

// version is that of a change, which comes again after the store was set back.
func (s *Store) version(change string) objects.Version {
	return objects.Version(strconv.Itoa(s.age) + "." + change)
}

// wake has every watch look again. The caller holds mu.
func (s *Store) wake() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// Edit changes a value as a person would, with nothing between him and the store. It is
// an error if nothing is stored under the key.
func (s *Store) Edit(key objects.Key, change func(value []byte) []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	stored := s.object(key)
	if stored.Version == objects.None {
		return errors.New("there is no " + key.String())
	}
	s.store(key, change(stored.Value), s.objects[key].ttl)
	return nil
}

// Backup returns what sets the store back to what it is now: all other changes are
// lost then, and each object has another version.
func (s *Store) Backup() (restore func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kept, changes := maps.Clone(s.objects), s.changes
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.age++
		s.objects, s.changes = map[objects.Key]entry{}, changes
		for key, e := range kept {
			e.version = s.version("of " + string(e.version))
			if e.ttl > 0 { // counted anew, as by etcd
				e.ends = time.Now().Add(e.ttl)
			}
			s.objects[key] = e
		}
		s.wake()
	}
}
