package reboots_test

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/slots"
	"hostler.io/hostler/controlplane/store"
)

// entry is a stored object. It is immutable, and each write stores another one.
type entry struct {
	object store.Object
	text   string      // what the protocol uses of the object, with "#" around the numbers of slots
	slots  slots.State // of a record
	place  rebootState // of a Node
}

// rebootState is what a Node says about the reboot of its host.
type rebootState struct {
	request controlplane.RebootRequest
	slot    *controlplane.RebootSlot
}

// textOf is the text of an entry that may be nil.
func textOf(e *entry) string {
	if e == nil {
		return "none"
	}
	return e.text
}

// The objects of a world.
const (
	aNode = iota
	aRecord
	allObjects
)

// world is the content of the store. A copy is independent.
type world struct {
	objects [allObjects]*entry // nil if there is none
	writes  int                // number of writes so far
	uids    int                // number of Nodes so far
}

func place(kind store.Kind) int {
	if kind.Name == store.Nodes.Name {
		return aNode
	}
	return aRecord
}

// recordOf returns the empty record of a group.
func recordOf(etcd bool) store.Object {
	if etcd {
		return &slots.Record{}
	}
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{slots.Annotation: "{}"}}}
}

// put stores an object.
func (w *world) put(at int, o store.Object) *entry {
	w.writes++
	o.SetResourceVersion(strconv.Itoa(w.writes))
	e := &entry{object: o}
	switch o := o.(type) {
	case *corev1.Node:
		if r, err := controlplane.RebootOf(o.Annotations); err != nil {
			panic(err)
		} else if r != nil {
			e.place.request = *r
		}
		var err error
		if e.place.slot, err = controlplane.RebootSlotOf(o.Annotations); err != nil {
			panic(err)
		}
		e.text = fmt.Sprint(o.UID, e.place.request.ID, e.place.request.Step)
		if s := e.place.slot; s != nil {
			_, number, _ := strings.Cut(s.Slot, "/")
			e.text += fmt.Sprintf(" %s #%s# %t %s", s.ID, number, s.Granted != nil, s.Why)
		}
	case *slots.Record:
		e.slots = o.State
	case *coordinationv1.Lease:
		if err := json.Unmarshal([]byte(o.Annotations[slots.Annotation]), &e.slots); err != nil {
			panic(err)
		}
	}
	if at == aRecord {
		for _, h := range e.slots.Holders {
			e.text += fmt.Sprintf(" holds %s %s #%d# %s", h.ID, h.Client.Request, h.Number, h.UID)
		}
		for _, r := range e.slots.Waiting {
			e.text += fmt.Sprintf(" waits %s %s #%d# %t", r.ID, r.Client.Request, r.Number, r.Paused)
		}
	}
	w.objects[at] = e
	return e
}

// port is the connection of an operation to a world. It makes the calls of its log again with the same answers, then
// one more call, and parks the operation at the next one.
type port struct {
	store.Store
	*world
	transactions bool // the store compares several objects in a write, as etcd does
	loses        bool // the answer to the write is lost
	log          []any
	made         int    // calls so far
	moved        bool   // the call after the log was made
	copied       *entry // answer of the first Get, if copies is true
	copies       bool
	edits        *editing // the Update in progress; nil if there is none
}

// editing is an Update that has read its object and others, and not written it yet.
type editing struct {
	calls int                // calls before it
	needs [allObjects]*entry // the object as it was read, which the write compares
}

// fails reports whether the write will fail.
func (e *editing) fails(w *world) bool {
	for at, o := range e.needs {
		if o != nil && o != w.objects[at] {
			return true
		}
	}
	return false
}

// parked is the panic at the call after the last one.
type parked struct{}

// answer is the answer to a write.
type answer struct {
	stored *entry
	err    error
}

// call makes a call, or returns the answer of the log.
func (p *port) call(do func() any) any {
	if p.made == len(p.log) {
		if p.moved {
			panic(parked{})
		}
		p.moved = true
		p.log = append(p.log[:p.made:p.made], do())
	}
	p.made++
	return p.log[p.made-1]
}

// write makes a call that writes. Its answer may be lost.
func (p *port) write(do func() answer) answer {
	return p.call(func() any {
		writes := p.writes
		a := do()
		if p.loses && p.writes > writes {
			return answer{err: controlplane.ErrUnavailable}
		}
		return a
	}).(answer)
}

func (p *port) EndsLeases() bool { return p.transactions }

func (p *port) get(at int) *entry {
	return p.call(func() any { return p.objects[at] }).(*entry)
}

func copyOf(e *entry) (store.Object, error) {
	if e == nil {
		return nil, controlplane.ErrNotFound
	}
	return e.object.DeepCopyObject().(store.Object), nil
}

// Get implements store.Store.
func (p *port) Get(_ context.Context, kind store.Kind, _ string) (store.Object, error) {
	if p.copies {
		p.copies = false
		return copyOf(p.copied)
	}
	return copyOf(p.get(place(kind)))
}

// Create implements store.Store.
func (p *port) Create(_ context.Context, kind store.Kind, o store.Object) (store.Object, error) {
	a := p.write(func() answer {
		if p.objects[place(kind)] != nil {
			return answer{err: controlplane.ErrConflict}
		}
		return answer{stored: p.put(place(kind), o.DeepCopyObject().(store.Object))}
	})
	if a.err != nil {
		return nil, a.err
	}
	return copyOf(a.stored)
}

// Update implements store.Store. It is one step: if another actor wrote between its read and its write, it would be
// tried again, or fail. Without transactions, as on Kubernetes, others may change after they were read.
func (p *port) Update(_ context.Context, kind store.Kind, _ string, pre store.Preconditions, edit func(store.Object) error) (store.Object, error) {
	at := place(kind)
	if len(pre.Others) > 0 && !p.transactions {
		return p.updateLater(at, pre, edit)
	}
	a := p.write(func() answer {
		o, before, err := edited(p.objects, at, pre, edit)
		if err != nil || o == nil {
			return answer{before, err}
		}
		return answer{stored: p.put(at, o)}
	})
	if a.err != nil {
		return nil, a.err
	}
	return copyOf(a.stored)
}

// updateLater is Update in two steps.
func (p *port) updateLater(at int, pre store.Preconditions, edit func(store.Object) error) (store.Object, error) {
	p.edits = &editing{calls: p.made}
	read := p.call(func() any { return p.objects }).([allObjects]*entry)
	p.edits.needs[at] = read[at]
	o, before, err := edited(read, at, pre, edit)
	if err == nil && o != nil {
		a := p.write(func() answer { return answer{stored: p.put(at, o)} })
		before, err = a.stored, a.err
	}
	if p.edits = nil; err != nil {
		return nil, err
	}
	return copyOf(before)
}

// edited returns the object to store, which is nil if nothing has to be written, and the stored one.
func edited(read [allObjects]*entry, at int, pre store.Preconditions, edit func(store.Object) error) (store.Object, *entry, error) {
	before := read[at]
	o, err := copyOf(before)
	if err == nil {
		err = pre.Check(o)
	}
	if err == nil {
		err = check(pre.Others, read)
	}
	if err == nil {
		err = edit(o)
	}
	if err != nil || reflect.DeepEqual(o, before.object) {
		return nil, before, err
	}
	return o, before, nil
}

// check returns ErrConflict if an object is not in its state.
func check(others []store.Reference, read [allObjects]*entry) error {
	for _, other := range others {
		var stored store.Object
		if e := read[place(other.Kind)]; e != nil {
			stored = e.object
		}
		if err := other.Check(stored, nil); err != nil {
			return err
		}
	}
	return nil
}
