package slots

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	coordinationv1 "k8s.io/api/coordination/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/store"
	"hostler.io/hostler/internal/bounded"
)

// Annotation has the State of a group on Kubernetes, as JSON. The Lease hostler-slots-GROUP has this
// annotation.
const (
	Annotation  = "hostler.io/slots"
	leasePrefix = "hostler-slots-"
)

// MostGroups is the maximum number of groups: a write that gives a slot compares the records of all others.
const MostGroups = store.MostOthers

// attempts bounds the attempts of a change that conflicts with changes by other servers. pause is the
// longest time between two attempts.
const (
	attempts = 20
	pause    = 50 * time.Millisecond
)

// Record is the object that stores the State of a group on etcd, at slots/GROUP.
type Record struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	State
}

// DeepCopyObject implements runtime.Object.
func (r *Record) DeepCopyObject() runtime.Object {
	return &Record{r.TypeMeta, *r.ObjectMeta.DeepCopy(), r.State.clone()}
}

func (s State) clone() State {
	s.Holders, s.Waiting, s.Releases = slices.Clone(s.Holders), slices.Clone(s.Waiting), slices.Clone(s.Releases)
	return s
}

// Groups reads and changes the States of all groups in a store. It is safe for concurrent use.
type Groups struct {
	store  store.Store
	kind   store.Kind
	prefix string // prefix of object names
	// lock serializes reads and changes, so that only other servers cause conflicts, and known never
	// gets older.
	lock chan struct{}

	mu    sync.Mutex // guards known
	known map[string]Known
}

// Known is the State of a group from the last read or change by this process.
type Known struct {
	State
	Version string // changes with each write; empty before the first write
	Err     error  // error of the last read; nil if it succeeded
}

// NewGroups returns the groups in a store. namespace has their Leases on Kubernetes; etcd ignores it.
func NewGroups(s store.Store, namespace string) *Groups {
	g := &Groups{store: s, lock: make(chan struct{}, 1), known: map[string]Known{}}
	if s.EndsLeases() {
		g.kind = store.Kind{
			Name: store.Slots, GVK: schema.GroupVersionKind{Group: "hostler.io", Version: "v1", Kind: "SlotGroup"},
			New: func() store.Object { return &Record{} },
		}
		return g
	}
	g.kind, g.prefix = store.Leases, leasePrefix
	g.kind.Namespace = namespace
	return g
}

// Object is KIND/NAME of the object that stores a group.
func (g *Groups) Object(group string) string { return g.kind.Key(g.prefix + group) }

// At is the precondition of a write that the record of a group has this version; empty if it does not exist.
func (g *Groups) At(group, version string) store.Reference {
	return store.Reference{Kind: g.kind, Name: g.prefix + group, Version: version}
}

// Known returns a group from the last read or change; false if there was none.
func (g *Groups) Known(group string) (Known, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	k, found := g.known[group]
	return k, found
}

// remember updates known with a stored object, which is nil if there is none, or with an error. The caller has
// the lock.
func (g *Groups) remember(group string, o store.Object, err error) (State, error) {
	next := Known{}
	if err == nil && o != nil {
		next.Version = o.GetResourceVersion()
		next.State, err = decode(o)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if next.Err = err; err != nil {
		next.State, next.Version = g.known[group].State, g.known[group].Version
	}
	g.known[group] = next
	if err != nil {
		return State{}, err
	}
	return next.State, nil
}

// withLock calls do while no other goroutine reads or changes groups.
func (g *Groups) withLock(ctx context.Context, operation, group string, do func() (State, error)) (State, error) {
	select {
	case g.lock <- struct{}{}:
		defer func() { <-g.lock }()
		return do()
	case <-ctx.Done():
		return State{}, fmt.Errorf("%s %s: %w: %w", operation, g.Object(group), controlplane.ErrUnavailable, context.Cause(ctx))
	}
}

// Get reads a group; the zero State if nothing is stored.
func (g *Groups) Get(ctx context.Context, group string) (State, error) {
	return g.withLock(ctx, "get", group, func() (State, error) { return g.get(ctx, group) })
}

// get is Get for a caller that has the lock.
func (g *Groups) get(ctx context.Context, group string) (State, error) {
	o, err := g.store.Get(ctx, g.kind, g.prefix+group)
	if errors.Is(err, controlplane.ErrNotFound) {
		o, err = nil, nil
	}
	return g.remember(group, o, err)
}

// Change calls edit with the State of a group, stores the result, and returns it. If another server has
// changed the group meanwhile, it calls edit again. It returns an error of edit unchanged. term is the term
// of a controller, or zero.
func (g *Groups) Change(ctx context.Context, group string, term store.Term, edit func(*State) error) (State, error) {
	return g.retry(ctx, group, func(bool) (store.Object, error) {
		return g.change(ctx, group, store.Preconditions{Term: term}, edit)
	})
}

// Give is Change for an edit that may give slots. others are all other groups. No client that holds a slot there
// gets one, which is compared in the write.
func (g *Groups) Give(ctx context.Context, group string, others []string, term store.Term, edit func(*State) error) (State, error) {
	return g.retry(ctx, group, func(again bool) (store.Object, error) {
		states, records, err := g.beside(ctx, others, again)
		if err != nil {
			return nil, err
		}
		return g.change(ctx, group, store.Preconditions{Term: term, Others: records}, func(s *State) error {
			*s = s.Beside(states)
			return edit(s)
		})
	})
}

// beside returns the known States of other groups, and their records as preconditions. It reads a group that is not
// known, and all of them if again is true. A group whose stored data is invalid is not compared: nobody gets or loses
// a slot of it. The caller has the lock.
func (g *Groups) beside(ctx context.Context, others []string, again bool) (map[string]State, []store.Reference, error) {
	states, records := map[string]State{}, []store.Reference(nil)
	for _, group := range others {
		k, read := g.Known(group)
		if again || !read || k.Err != nil {
			if _, err := g.get(ctx, group); err != nil && !errors.Is(err, store.ErrUnreadable) {
				return nil, nil, err
			}
			k, _ = g.Known(group)
		}
		if states[group] = k.State; k.Err == nil {
			records = append(records, g.At(group, k.Version))
		}
	}
	return states, records, nil
}

// retry makes attempts of a change until there is no conflict. again is false for the first one.
func (g *Groups) retry(ctx context.Context, group string, attempt func(again bool) (store.Object, error)) (State, error) {
	return g.withLock(ctx, "change", group, func() (State, error) {
		for n := 1; ; n++ {
			o, err := attempt(n > 1)
			if err == nil {
				return g.remember(group, o, nil)
			}
			if !errors.Is(err, controlplane.ErrConflict) || n == attempts {
				return State{}, err
			}
			if err := bounded.Sleep(ctx, bounded.Random(pause)); err != nil {
				return State{}, err
			}
		}
	})
}

// change makes one attempt. It returns the stored object; nil if there is none.
func (g *Groups) change(ctx context.Context, group string, pre store.Preconditions, edit func(*State) error) (store.Object, error) {
	name := g.prefix + group
	o, err := g.store.Update(ctx, g.kind, name, pre, func(o store.Object) error {
		before, err := decode(o)
		if err != nil {
			return err
		}
		after := before.clone()
		err = edit(&after)
		if after.beside = before.beside; err != nil || reflect.DeepEqual(before, after) {
			return err
		}
		return encode(o, after)
	})
	if errors.Is(err, controlplane.ErrNotFound) {
		return g.create(ctx, group, pre, edit)
	}
	return o, err
}

// create stores an empty group, then changes it under the preconditions. It returns nil if edit changes nothing.
func (g *Groups) create(ctx context.Context, group string, pre store.Preconditions, edit func(*State) error) (store.Object, error) {
	state := State{}
	err := edit(&state)
	if state.beside = (beside{}); err != nil || reflect.DeepEqual(state, State{}) {
		return nil, err
	}
	o := g.kind.New()
	o.SetName(g.prefix + group)
	if err := encode(o, State{}); err != nil {
		return nil, err
	}
	if _, err := g.store.Create(ctx, g.kind, o); err != nil {
		return nil, err
	}
	return g.change(ctx, group, pre, edit)
}

// decode reads the State from an object.
func decode(o store.Object) (State, error) {
	switch o := o.(type) {
	case *Record:
		return o.State.clone(), nil
	case *coordinationv1.Lease:
		var s State
		if text := o.Annotations[Annotation]; text != "" {
			if err := json.Unmarshal([]byte(text), &s); err != nil {
				return s, fmt.Errorf("%w: annotation %s of Lease %s: %w: fix or delete it", store.ErrUnreadable, Annotation, o.Name, err)
			}
		}
		return s, nil
	}
	return State{}, fmt.Errorf("%w: the store returned a %T", controlplane.ErrInvalid, o)
}

// encode writes a State into an object.
func encode(o store.Object, s State) error {
	for _, list := range []reflect.Value{reflect.ValueOf(&s.Holders), reflect.ValueOf(&s.Waiting), reflect.ValueOf(&s.Releases)} {
		if list = list.Elem(); list.IsNil() {
			list.Set(reflect.MakeSlice(list.Type(), 0, 0)) // encode as [], not as null
		}
	}
	if record, is := o.(*Record); is {
		record.State = s
		return nil
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(s); err != nil {
		return fmt.Errorf("%w: %w", controlplane.ErrInvalid, err)
	}
	annotations := o.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[Annotation] = string(bytes.TrimSpace(text.Bytes()))
	o.SetAnnotations(annotations)
	return nil
}
