// Package objectstest is what stores of objects, and the client over them, are tested
// with: Store, one in memory that fails on demand and can be set back as by a restored
// backup, and a suite of what every objects.Store promises.
package objectstest

import (
	"context"
	"errors"
	"fmt"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/faulttest"
	"hostler.io/hostler/controlplane/objects"
	"hostler.io/hostler/controlplane/objects/memory"
)

// Call names a method of objects.Store.
type Call string

// The methods that a Fault can befall.
const (
	Any    Call = ""
	Get    Call = "get"
	Put    Call = "put"
	Delete Call = "delete"
	List   Call = "list"
	Watch  Call = "watch"
)

// Fault is what goes wrong with a call. None is Stale.
type Fault = faulttest.Fault

// Store keeps objects in memory, for any number of clients, and ends them with their time to
// live. It works under testing/synctest. Use New.
type Store struct {
	*memory.Store
	*faulttest.Book[Call]
}

var _ objects.Store = (*Store)(nil)

// New returns an empty store without faults.
func New() *Store {
	s := memory.New(memory.Options{Type: "objectstest", Endpoint: "memory", PageSize: 7})
	s.End(true)
	return &Store{s, faulttest.NewBook[Call]()}
}

// Get implements objects.Store.
func (s *Store) Get(ctx context.Context, key objects.Key) (objects.Object, error) {
	fault, err := s.Begin(ctx, Get, key.String())
	if err != nil {
		return objects.Object{}, err
	}
	stored, err := s.Store.Get(ctx, key)
	if err == nil {
		err = fault.Answer()
	}
	return stored, err
}

// Put implements objects.Store.
func (s *Store) Put(ctx context.Context, key objects.Key, put objects.Put) (objects.Version, error) {
	fault, err := s.Begin(ctx, Put, key.String())
	if err != nil {
		return objects.None, err
	}
	if fault.Conflict {
		s.interfere(key)
	}
	version, err := s.Store.Put(ctx, key, put)
	if err == nil {
		err = fault.Answer()
	}
	if err != nil {
		return objects.None, err
	}
	return version, nil
}

// interfere writes the object as another client who changes nothing in it.
func (s *Store) interfere(key objects.Key) {
	_ = s.Edit(key, func(value []byte) []byte { return value }) // where it is there
}

// Delete implements objects.Store.
func (s *Store) Delete(ctx context.Context, key objects.Key, version objects.Version) error {
	fault, err := s.Begin(ctx, Delete, key.String())
	if err != nil {
		return err
	}
	if fault.Conflict && version != objects.None {
		s.interfere(key)
	}
	if fault.LeaseStays && key.Kind == objects.Node {
		lease := s.object(objects.Key{Kind: objects.Lease, Node: key.Node})
		if err := s.Store.Delete(ctx, key, version); err != nil {
			return err
		}
		if lease != nil {
			if _, err := s.Store.Put(ctx, lease.Key, objects.Put{Value: lease.Value, TTL: lease.TTL}); err != nil {
				return err
			}
		}
		return fmt.Errorf("delete %s: %w: %w", key, controlplane.ErrLeaseStays, controlplane.ErrUnavailable)
	}
	if err := s.Store.Delete(ctx, key, version); err != nil {
		return err
	}
	return fault.Answer()
}

// List implements objects.Store.
func (s *Store) List(ctx context.Context, kind objects.Kind, node, page string) (list []objects.Object, next string, err error) {
	fault, err := s.Begin(ctx, List, string(kind))
	if err != nil {
		return nil, "", err
	}
	if list, next, err = s.Store.List(ctx, kind, node, page); err == nil {
		err = fault.Answer()
	}
	return list, next, err
}

// Watch implements objects.Store.
func (s *Store) Watch(ctx context.Context, key objects.Key, seen chan<- objects.Object) error {
	if _, err := s.Begin(ctx, Watch, key.String()); err != nil {
		return err
	}
	err := s.Book.Watch(ctx, func(ctx context.Context) error { return s.Store.Watch(ctx, key, seen) }, Watch)
	return fmt.Errorf("watch %s: %w", key, err)
}

// object is what is stored under a key; nil if nothing is.
func (s *Store) object(key objects.Key) *memory.Object {
	for _, o := range s.Snapshot(key.Kind) {
		if o.Key == key {
			return &o
		}
	}
	return nil
}

// Edit changes a value as a person would, with nothing between him and the store. It is
// an error if nothing is stored under the key.
func (s *Store) Edit(key objects.Key, change func(value []byte) []byte) error {
	for {
		stored, err := s.Store.Get(context.Background(), key)
		if err != nil {
			return err
		}
		put := objects.Put{Value: change(stored.Value), Instead: stored.Version, TTL: s.object(key).TTL}
		if _, err := s.Store.Put(context.Background(), key, put); !errors.Is(err, controlplane.ErrConflict) {
			return err
		}
	}
}

// Backup returns what sets the store back to what it is now: all other changes are
// lost then, and each object has another version.
func (s *Store) Backup() (restore func()) {
	kept := s.Snapshot(objects.Node, objects.Lease, objects.Event, objects.Setting)
	return func() { s.Restore(kept) }
}
