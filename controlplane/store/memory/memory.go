// Package memory is a store.Store in memory, for tests of controllers. It fails on demand, counts calls,
// and works under testing/synctest.
//
// It owns versions, terms and the expiry of Leases. The server role does not use it.
package memory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
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
	// Now is the clock of stored times; time.Now if nil. Waits use package time.
	Now func() time.Time
}

// Store stores the objects of a fleet. Inject and Heal control its faults, and Calls counts calls.
// Use New. The processes of one fleet share a Store.
type Store struct {
	*faulttest.Book[Call]
	o Options

	mu        sync.Mutex        // guards the fields below
	revision  int64             // of the latest write
	objects   map[string]*entry // by path: the folder of the kind, and the name
	elections map[string]*election
	watches   map[*watch]struct{}
	settings  map[string]store.Setting
	ended     map[string]bool // Leases that have expired, by resourceVersion
}

var (
	_ store.Store      = (*Store)(nil)
	_ store.LeaseEnder = (*Store)(nil)
)

// entry is a stored object.
type entry struct {
	value    []byte // immutable
	revision int64
	end      *time.Timer // of a Lease; nil for objects that do not expire
}

// election is a term of a controller.
type election struct {
	leader store.Leader
	token  string
	ends   time.Time
}

// New returns an empty store.
func New(o Options) *Store {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Store{
		Book: faulttest.NewBook[Call](), o: o,
		objects: map[string]*entry{}, elections: map[string]*election{}, watches: map[*watch]struct{}{},
		settings: map[string]store.Setting{}, ended: map[string]bool{},
	}
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
	o = o.DeepCopyObject().(store.Object)
	name := kind.StoredName(o)
	if before, err := s.read(kind, name); err == nil && o.GetUID() == "" {
		o.SetUID(before.GetUID())
		o.SetCreationTimestamp(before.GetCreationTimestamp())
	}
	if o.GetUID() == "" {
		o.SetUID(types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012x", s.revision+1)))
	}
	if created := o.GetCreationTimestamp(); created.IsZero() {
		o.SetCreationTimestamp(metav1.NewTime(s.o.Now()).Rfc3339Copy())
	}
	value, err := kind.Encode(o)
	if err != nil {
		panic(err) // the test has built no API object
	}
	e := s.write(kind, name, value)
	if lease, ok := o.(*coordinationv1.Lease); ok && s.o.EndsLeases && lease.Spec.LeaseDurationSeconds != nil {
		e.end = time.AfterFunc(time.Duration(*lease.Spec.LeaseDurationSeconds)*time.Second, func() { s.expire(name, e) })
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
	s.write(kind, name, value)
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

// Relist makes each Follow in progress start again with a list, as after a compaction.
func (s *Store) Relist() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.watches {
		s.list(w)
	}
}

// write stores a value under the next revision. The caller holds mu.
func (s *Store) write(kind store.Kind, name string, value []byte) *entry {
	k := kind.Folder() + name
	if before := s.objects[k]; before != nil && before.end != nil {
		before.end.Stop()
	}
	s.revision++
	e := &entry{value: value, revision: s.revision}
	s.objects[k] = e
	s.report(k, change{value: value, revision: e.revision})
	return e
}

// remove deletes an object if it exists. The caller holds mu.
func (s *Store) remove(path string) {
	e := s.objects[path]
	if e == nil {
		return
	}
	delete(s.objects, path) // the timer of a Lease goes on: see LeaseEnded
	s.revision++
	s.report(path, change{deleted: true, value: e.value, revision: e.revision})
}

// expire removes a Lease unless it was put again.
func (s *Store) expire(name string, e *entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended[strconv.FormatInt(e.revision, 10)] = true
	if path := store.Leases.Folder() + name; s.objects[path] == e {
		s.remove(path)
	}
}

// LeaseEnded implements store.LeaseEnder.
func (s *Store) LeaseEnded(ctx context.Context, last store.Object) (bool, error) {
	ended := false
	err := s.call(ctx, Get, store.Leases, last.GetName(), func(Fault) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		ended = s.ended[last.GetResourceVersion()]
		return nil
	})
	return ended, err
}

// read decodes an object. The caller holds mu.
func (s *Store) read(kind store.Kind, name string) (store.Object, error) {
	e := s.objects[kind.Folder()+name]
	if e == nil {
		return nil, controlplane.ErrNotFound
	}
	o, err := decode(kind, name, e.value, e.revision)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", controlplane.ErrInvalid, err)
	}
	return o, nil
}

func decode(kind store.Kind, name string, value []byte, revision int64) (store.Object, error) {
	left := controlplane.MostValues
	return kind.Decode(name, value, strconv.FormatInt(revision, 10), &left)
}

// Ping implements store.Store.
func (s *Store) Ping(ctx context.Context) error {
	_, err := s.Begin(ctx, Ping, "memory")
	return err
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
	return o, err
}

// Update implements store.Store.
func (s *Store) Update(ctx context.Context, kind store.Kind, name string, pre store.Preconditions, edit func(store.Object) error) (store.Object, error) {
	var stored store.Object
	var refusal error // error of edit
	err := s.call(ctx, Update, kind, name, func(fault Fault) error {
		s.mu.Lock()
		before, err := s.read(kind, name)
		var value []byte
		if err == nil {
			value = s.objects[kind.Folder()+name].value
		}
		s.mu.Unlock()
		if err == nil {
			err = pre.Check(before)
		}
		if err != nil {
			return err
		}
		stored = before
		value, err = kind.Edit(before, value, func(o store.Object) error {
			refusal = edit(o)
			return refusal
		})
		if err == nil && value != nil {
			stored, err = s.replace(kind, name, before, value, pre, fault.Conflict)
		}
		return err
	})
	if refusal != nil {
		return nil, refusal
	}
	if err != nil {
		return nil, err
	}
	return stored, nil
}

// replace stores the next value of an object if the object has not changed.
func (s *Store) replace(kind store.Kind, name string, before store.Object, value []byte, pre store.Preconditions, conflict bool) (store.Object, error) {
	path := kind.Folder() + name
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.objects[path]; conflict && e != nil {
		s.rewrite(path, e.value)
	}
	if err := s.guard(before, pre); err != nil {
		return nil, err
	}
	e := s.objects[path]
	if e == nil || strconv.FormatInt(e.revision, 10) != before.GetResourceVersion() {
		return nil, fmt.Errorf("%w: another client has changed or deleted it", controlplane.ErrConflict)
	}
	after, err := decode(kind, name, value, s.revision+1)
	if err != nil {
		return nil, err
	}
	if store.Released(before, after) {
		s.remove(path)
		return after, nil
	}
	s.rewrite(path, value)
	return s.read(kind, name)
}

// rewrite stores another value of an object, but keeps its expiry. The caller holds mu.
func (s *Store) rewrite(path string, value []byte) {
	e := s.objects[path]
	s.revision++
	e.value, e.revision = value, s.revision
	s.report(path, change{value: value, revision: e.revision})
}

// Delete implements store.Store.
func (s *Store) Delete(ctx context.Context, kind store.Kind, name string, pre store.Preconditions, policy metav1.DeletionPropagation) error {
	return s.call(ctx, Delete, kind, name, func(Fault) error {
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

// guard returns an error if a precondition that is not about the object itself refuses a write. The
// caller holds mu.
func (s *Store) guard(o store.Object, pre store.Preconditions) error {
	if pre.Term != (store.Term{}) && s.holds(pre.Term) == nil {
		return store.ErrDeposed
	}
	for _, other := range pre.Others {
		o, err := s.read(other.Kind.Metadata(), other.Name)
		if err != nil && !errors.Is(err, controlplane.ErrNotFound) {
			return fmt.Errorf("%s: %w", other.Kind.Key(other.Name), err)
		}
		if err := other.Check(o); err != nil {
			return err
		}
	}
	for _, p := range pre.Unchanged {
		at, err := strconv.ParseInt(p.Version, 10, 64)
		if err != nil {
			return fmt.Errorf("%w: position %q", controlplane.ErrInvalid, p.Version)
		}
		for path, e := range s.objects {
			if strings.HasPrefix(path, p.Kind.Folder()) && e.revision > at {
				return fmt.Errorf("%w: %s has changed", controlplane.ErrConflict, path)
			}
		}
	}
	for _, kind := range pre.Unlisted {
		for _, name := range s.names(kind) {
			if !strings.HasPrefix(name, o.GetNamespace()+"/") {
				continue
			}
			found, err := s.read(kind, name)
			if err != nil {
				return fmt.Errorf("list %s: %w: %w", kind.Name, controlplane.ErrUnavailable, err)
			}
			if slices.ContainsFunc(found.GetOwnerReferences(), func(ref metav1.OwnerReference) bool { return ref.UID == o.GetUID() }) {
				return fmt.Errorf("list %s: %w: %s refers to it", kind.Name, controlplane.ErrUnavailable, name)
			}
		}
	}
	return nil
}

// call makes a call on an object, with its fault.
func (s *Store) call(ctx context.Context, c Call, kind store.Kind, name string, serve func(Fault) error) error {
	if err := kind.CheckCall(ctx, string(c)+" "+kind.Name, name); err != nil {
		return err
	}
	fault, err := s.Begin(ctx, c, kind.Name+"/"+name)
	if err != nil {
		return err
	}
	if err = serve(fault); err == nil {
		err = fault.Answer()
	}
	if err != nil {
		return fmt.Errorf("%s %s/%s: %w", c, kind.Name, name, err)
	}
	return nil
}

// names returns the names of the stored objects of a kind, sorted. The caller holds mu.
func (s *Store) names(kind store.Kind) []string {
	var names []string
	for path := range s.objects {
		if name, found := strings.CutPrefix(path, kind.Folder()); found && kind.Is(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
