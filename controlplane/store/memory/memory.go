// Package memory is a store.Store in memory, for tests of controllers. It fails on demand, counts calls,
// and works under testing/synctest.
//
// It owns versions, terms and the expiry of Leases. The server role does not use it.
package memory

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/faulttest"
	"hostler.io/hostler/controlplane/store"
)

// Call names a method of store.Store.
type Call string

// The calls that can have a fault, and that are counted.
const (
	Any     Call = ""
	Ping    Call = "Ping"
	Get     Call = "Get"
	Create  Call = "Create"
	Update  Call = "Update"
	Delete  Call = "Delete"
	Follow  Call = "Follow"
	Elect   Call = "Elect"
	Extend  Call = "Extend"
	Resign  Call = "Resign"
	Leader  Call = "Leader"
	Setting Call = "Setting"
	Set     Call = "Set"
)

// Fault is the fault of a call: Delay, Until, Hang, Err, LoseAnswer and, for an Update, Conflict.
// Err ends a Follow in progress; after Hang, it reports nothing more.
type Fault = faulttest.Fault

// Options configure a Store.
type Options struct {
	// EndsLeases makes a Lease expire that was not put for its duration, and leaves out writes for
	// scope Deletions, as etcd does. Kubernetes does neither.
	EndsLeases bool
	// LocalTerms makes each process judge by its own clock whether a term has ended, as on Kubernetes: a
	// write is not refused because its term has ended meanwhile. Over a Network, a write compares no other
	// objects: they are read right before it. After a restore, versions repeat. A process does not notice that if the
	// store is as far again at its next Ping.
	LocalTerms bool
	// Bookmarks is the time between reports of the latest revision to a Tracker or Confirmer;
	// store.ConfirmInterval if 0.
	Bookmarks time.Duration
	// Wrote, if not nil, is called at each write of an object, with the value before and after; nil for
	// none. It must not call the Store.
	Wrote func(path string, before, after []byte)
	// Expiry is how often Leases that have ended are removed, as by etcd; at once if 0.
	Expiry time.Duration
	// Now is the clock of stored times; time.Now if nil. Waits use package time.
	Now func() time.Time
}

// Store stores the objects of a fleet. Inject and Heal control its faults, and Calls counts calls.
// Use New. The processes of one fleet share a Store, or have a view of it each: see Over.
type Store struct {
	*faulttest.Book[Call]
	*fleet
	network Network   // nil for a process that the faults of the Book affect
	terms   *terms    // of this process
	pinged  *position // at the last Ping of this process; the mutex of the fleet guards it
}

// position is a state of the store.
type position struct {
	epoch    int   // history.epoch
	revision int64 // 0 before the first Ping
}

// fleet is what all processes share: the stored objects at each revision that a watch may still need.
type fleet struct {
	o       Options
	started time.Time

	mu        sync.Mutex        // guards the fields below
	revision  int64             // of the latest write
	unique    int64             // the last number that was used for a UID or a term; a restore does not set it back
	objects   map[string]*entry // by path: the folder of the kind, and the name
	elections map[string]*election
	settings  map[string]store.Setting
	history   history
	away      bool // no Lease ends
}

var _ store.Store = (*Store)(nil)

// entry is a stored object.
type entry struct {
	value    []byte // immutable
	revision int64
	ttl      time.Duration // of a Lease; 0 for objects that do not expire
	ends     time.Time     // zero for objects that do not expire
}

// election is a term of a controller.
type election struct {
	leader store.Leader
	token  string
	ttl    time.Duration
	// version changes with each write of the record.
	version int64
}

// New returns an empty store.
func New(o Options) *Store {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Store{Book: faulttest.NewBook[Call](), terms: newTerms(), pinged: new(position), fleet: &fleet{
		o: o, started: time.Now(), objects: map[string]*entry{}, elections: map[string]*election{}, settings: map[string]store.Setting{},
	}}
}

// Type returns "memory".
func (s *Store) Type() string { return "memory" }

// Endpoint returns "memory".
func (s *Store) Endpoint() string { return "memory" }

// EndsLeases implements store.Store.
func (s *Store) EndsLeases() bool { return s.o.EndsLeases }

// Close does nothing.
func (s *Store) Close() error { return nil }

// Put stores an object as an agent does, and returns the stored object. It has no faults. An object
// without a UID and a creationTimestamp gets them; a stored object keeps its own. A Lease is alive
// for its duration from now on.
func (s *Store) Put(kind store.Kind, o store.Object) store.Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.putObject(kind, o)
}

// putObject is Put for a caller that holds mu.
func (s *fleet) putObject(kind store.Kind, o store.Object) store.Object {
	o = o.DeepCopyObject().(store.Object)
	name := kind.StoredName(o)
	if before, err := s.read(kind, name); err == nil && o.GetUID() == "" {
		o.SetUID(before.GetUID())
		o.SetCreationTimestamp(before.GetCreationTimestamp())
	}
	if o.GetUID() == "" {
		o.SetUID(types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012x", s.number())))
	}
	if created := o.GetCreationTimestamp(); created.IsZero() {
		o.SetCreationTimestamp(metav1.NewTime(s.o.Now()).Rfc3339Copy())
	}
	value, err := kind.Encode(o)
	if err != nil {
		panic(err) // the test has built no API object
	}
	e := s.put(kind.Folder()+name, value)
	if lease, ok := o.(*coordinationv1.Lease); ok && s.o.EndsLeases && lease.Spec.LeaseDurationSeconds != nil {
		s.bind(e, time.Duration(*lease.Spec.LeaseDurationSeconds)*time.Second)
	}
	stored, err := s.read(kind, name)
	if err != nil {
		panic(err) // cannot fail: it was encoded above
	}
	return stored
}

// PutRaw stores a value that may be unreadable. It has no faults.
func (s *Store) PutRaw(kind store.Kind, name string, value []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put(kind.Folder()+name, value)
}

// Peek reads an object. It has no faults.
func (s *Store) Peek(kind store.Kind, name string) (store.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.read(kind, name)
}

// Edit changes an object as another client does, and reports whether it exists. It has no faults.
func (s *Store) Edit(kind store.Kind, name string, change func(store.Object)) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, err := s.read(kind, name)
	if err != nil {
		return false
	}
	change(o)
	value, err := kind.Encode(o)
	if err != nil {
		panic(err) // the test has built no API object
	}
	s.rewrite(kind.Folder()+name, value)
	return true
}

// Names returns the names of the stored objects of a kind, sorted. It has no faults.
func (s *Store) Names(kind store.Kind) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.names(kind)
}

// Remove deletes an object if it exists. It has no faults.
func (s *Store) Remove(kind store.Kind, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove(kind.Folder() + name)
}

// Depose ends the term of a controller, if there is one, as a person does who deletes its record.
func (s *Store) Depose(controller string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.elections, controller)
}

// read decodes an object. The caller holds mu.
func (s *fleet) read(kind store.Kind, name string) (store.Object, error) {
	e := s.objects[kind.Folder()+name]
	if e == nil {
		return nil, controlplane.ErrNotFound
	}
	o, err := decode(kind, name, e.value, s.version(e.revision))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", controlplane.ErrInvalid, err)
	}
	return o, nil
}

func decode(kind store.Kind, name string, value []byte, version string) (store.Object, error) {
	left := controlplane.MostValues
	return kind.Decode(name, value, version, &left)
}

// Ping implements store.Store.
func (s *Store) Ping(ctx context.Context) error {
	return s.do(ctx, Ping, "memory", func(Fault) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		before := *s.pinged
		if *s.pinged = (position{s.history.epoch, s.revision}); s.restored(before) {
			return store.ErrRestored
		}
		return nil
	})
}

// restored reports whether a process can see that the store was restored since it was at a position. etcd has another
// cluster ID then. Kubernetes only has revisions. The caller holds mu.
func (s *fleet) restored(since position) bool {
	if !s.o.LocalTerms {
		return since.epoch != s.history.epoch
	}
	return since.revision != 0 && (s.revision < since.revision || s.revision-since.revision > store.RestoreJump)
}

// Get implements store.Store.
func (s *Store) Get(ctx context.Context, kind store.Kind, name string) (store.Object, error) {
	var o store.Object
	err := s.call(ctx, Get, kind, name, func(Fault) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		var err error
		o, err = s.read(kind, name)
		return err
	})
	if err != nil {
		return nil, err
	}
	return o, nil
}

// Delete implements store.Store.
func (s *Store) Delete(ctx context.Context, kind store.Kind, name string, pre store.Preconditions, policy metav1.DeletionPropagation) error {
	pre, err := s.confirm(ctx, kind, name, pre)
	if err != nil {
		return err
	}
	return s.write(ctx, Delete, kind, name, pre, func(Fault) error {
		path := kind.Folder() + name
		s.mu.Lock()
		defer s.mu.Unlock()
		e := s.objects[path]
		if e == nil {
			return controlplane.ErrNotFound
		}
		stored, err := s.read(kind, name)
		if err != nil && (pre.UID != "" || pre.Version != "" || policy != "") { // without preconditions, an unreadable object is removed
			return err
		}
		remove, value := true, []byte(nil)
		if err == nil {
			if err := pre.Check(stored); err != nil {
				return err
			}
			value, err = kind.Edit(stored, e.value, func(o store.Object) error {
				remove = store.RequestDeletion(o, policy, metav1.NewTime(s.o.Now()).Rfc3339Copy())
				return nil
			})
			if err != nil {
				return err
			}
		}
		if err := s.guard(stored, pre); err != nil {
			return err
		}
		switch {
		case remove:
			s.remove(path)
		case value != nil:
			s.rewrite(path, value)
		}
		return nil
	})
}

// names returns the names of the stored objects of a kind, sorted. The caller holds mu.
func (s *fleet) names(kind store.Kind) []string {
	var names []string
	for path := range s.objects {
		if name, found := strings.CutPrefix(path, kind.Folder()); found && kind.Is(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
