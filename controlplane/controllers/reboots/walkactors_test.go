package reboots_test

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controllers/podcache"
	"hostler.io/hostler/controlplane/controllers/reboots"
	"hostler.io/hostler/controlplane/slots"
	"hostler.io/hostler/controlplane/store"
	"hostler.io/hostler/internal/loop"
)

// The operations of servers.
const (
	toChange   = "change the record"
	toAnswer   = "answer on the Node"
	toRelease  = "release the slot of n1"
	toRequest  = "request a slot for x"
	toGiveBack = "give the slot of x back"
)

// operation is an operation of a server in progress. It is immutable.
type operation struct {
	does string
	// copies are what a leader has decided from: its Node and its record. They may be old.
	copies [allObjects]*entry
	log    []any    // answers so far
	edits  *editing // Update in progress
}

// current returns the operation after another actor has changed the world. A write that will fail does not change
// anything, so it is left out: an answer on the Node ends, another operation reads the object again.
func (o *operation) current(w *world) *operation {
	switch {
	case o == nil || o.edits == nil || !o.edits.fails(w):
		return o
	case o.does == toAnswer:
		return nil
	}
	next := *o
	next.log, next.edits = o.log[:o.edits.calls], nil
	return &next
}

// advance makes the next call of an operation. It returns nil at its end, and whether the operation has got a slot.
func (p policy) advance(w *world, o operation, loses bool) (next *operation, got bool) {
	port := &port{world: w, transactions: p.transactions, loses: loses, log: o.log}
	ended := func() (ended bool) {
		defer func() {
			if r := recover(); r != nil {
				if _, is := r.(parked); !is {
					panic(r)
				}
			}
		}()
		got = p.run(port, o)
		return true
	}()
	if o.log, o.edits = port.log, port.edits; ended {
		return nil, got
	}
	return &o, false
}

// run runs an operation, and reports whether it has got a slot.
func (p policy) run(s *port, o operation) (got bool) {
	ctx, c := context.Background(), p.server(s, o.copies)
	switch o.does {
	case toRelease:
		_ = c.Release(ctx, "default", "n1", "anna", "broken")
	case toRequest:
		wait, err := c.Request(ctx, "default", "x")
		return wait == nil && err == nil
	case toGiveBack:
		_ = c.GiveBack(ctx, "default", "x")
	default:
		for _, a := range due(c) {
			if nameOf(a) == o.does {
				_ = c.Write(ctx, store.Term{}, a)
				return false
			}
		}
	}
	return false
}

// nameOf is the operation that carries out an action.
func nameOf(a reboots.Action) string {
	if _, is := a.(reboots.Change); is {
		return toChange
	}
	return toAnswer
}

// late is a time at which each operation in progress has taken too long.
func late() time.Time { return time.Now().Add(time.Hour) }

func due(c *reboots.Controller) []reboots.Action {
	actions, err := c.Actions(late())
	if err != nil {
		panic(err)
	}
	return actions
}

// server returns a server with these copies.
func (p policy) server(s *port, copies [allObjects]*entry) *reboots.Controller {
	contact, groups, log := &store.Contact{}, slots.NewGroups(s, ""), slog.New(slog.DiscardHandler)
	contact.Answered(late())
	s.copies, s.copied = true, copies[aRecord]
	_, _ = groups.Get(context.Background(), "default")
	c := reboots.New(s, groups, contact, podcache.New(), loop.NewSignal(), reboots.Policies{"default": p.slots}, nil, "s", log)
	c.Nodes().Begin()
	if e := copies[aNode]; e != nil {
		c.Nodes().Set("n1", e.object)
	}
	c.Nodes().Synced()
	store.Confirmed(c.Nodes(), late())
	return c
}

// automaton is the agent of host n1, with the steps that it publishes.
type automaton struct {
	uid  types.UID // of the Node that it knows
	step controlplane.RebootStep
	id   int // number of its request
	// acts reports that pods stop, or that the host is down. excused reports that its slot was released or its Node was
	// deleted meanwhile: other hosts may act, too.
	acts, excused bool
}

// request is the ID of the present request.
func (h automaton) request() string { return fmt.Sprint("r", h.id) }

// register stores a Node of n1.
func (w *world) register() {
	w.uids++
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: types.UID(fmt.Sprint("u", w.uids))}}
	setReady(corev1.ConditionTrue)(node)
	w.put(aNode, node)
}

// announce writes the step of the host on its Node, reads the answer there, and takes the next step. It returns false
// if the host has nothing to do.
func (h *automaton) announce(w *world, requests int) bool {
	e := w.objects[aNode]
	switch {
	case e == nil || h.step == "":
		return false
	case e.object.GetUID() != h.uid:
		h.uid = e.object.GetUID() // the next step writes on that Node
		return true
	}
	if r := e.place.request; r.ID != h.request() || r.Step != h.step {
		node := e.object.DeepCopyObject().(*corev1.Node)
		setRequest(node, controlplane.RebootRequest{ID: h.request(), Step: h.step, Reason: "kernel"})
		e = w.put(aNode, node)
	} else if h.step == controlplane.RebootWaiting && e.place.slot == nil {
		return false
	}
	s := e.place.slot
	h.next(s != nil && s.ID == h.request() && s.Granted != nil, requests)
	return true
}

// next takes the next step of the host, after it has written its step on the Node and read the answer.
func (h *automaton) next(granted bool, requests int) {
	switch h.step {
	case controlplane.RebootWanted:
		h.step = controlplane.RebootWaiting
	case controlplane.RebootWaiting:
		if granted {
			h.step = controlplane.RebootGranted
		}
	case controlplane.RebootGranted:
		h.step = controlplane.RebootWaiting
		if granted {
			h.step = controlplane.RebootDraining
		}
	case controlplane.RebootDraining, controlplane.RebootRebooting:
		switch {
		case !granted:
			h.step, h.acts = controlplane.RebootWanted, false
		case h.step == controlplane.RebootDraining:
			h.step, h.acts = controlplane.RebootRebooting, true
		default:
			h.step = controlplane.RebootVerifying
		}
	case controlplane.RebootVerifying:
		h.step, h.acts = controlplane.RebootDone, false
	case controlplane.RebootDone:
		h.step = ""
		if h.id < requests {
			h.id, h.step = h.id+1, controlplane.RebootWaiting
		}
	}
	h.excused = h.excused && h.acts
}
