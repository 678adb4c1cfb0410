// Package objectstest has tools to test stores of objects and the client that uses them. Store is
// in memory, fails on demand, and can be set back as by a restored backup. Run is a suite of the
// promises of objects.Store.
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

// The methods that can have a Fault.
const (
	Any    Call = ""
	Get    Call = "get"
	Put    Call = "put"
	Delete Call = "delete"
	List   Call = "list"
	Watch  Call = "watch"
)

// Fault is the fault of a call. Stale is not supported.
type Fault = faulttest.Fault

// Store stores objects in memory, for any number of clients, and deletes them after their TTL. It
// works under testing/synctest. Use New.
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

// interfere writes the object as another client that changes nothing in it.
func (s *Store) interfere(key objects.Key) {
	_ = s.Edit(key, func(value []byte) []byte { return value }) // fails if the object does not exist
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

// object returns the object of a key; nil if there is none.
func (s *Store) object(key objects.Key) *memory.Object {
	for _, o := range s.Snapshot(key.Kind) {
		if o.Key == key {
			return &o
		}
	}
	return nil
}

// Edit changes a value in the store directly, as a person can. It returns an error if the key has
// no object.
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

// Backup returns a function that restores the present state: all later changes are lost, and each
// object gets another version.
func (s *Store) Backup() (restore func()) {
	kept := s.Snapshot(objects.Node, objects.Lease, objects.Event, objects.Setting)
	return func() { s.Restore(kept) }
}
