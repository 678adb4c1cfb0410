package reboots

import (
	"fmt"
	"time"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/slots"
	"hostler.io/hostler/controlplane/store"
)

// These are the shortest times between two messages on a Node with the same meaning.
const (
	refreshWaiting  = 10 * time.Second
	refreshEmptying = time.Minute
)

// Answer changes the slot annotation of a Node, and cordons or uncordons it.
type Answer struct {
	Node          slots.Node
	Slot          *controlplane.RebootSlot // nil to remove the annotation
	Unschedulable bool
	Steps         []Step
	before        Host
	records       []record
}

// Object implements executor.Action.
func (a Answer) Object() string { return store.Nodes.Key(a.Node.Name) }

// Version implements executor.Action.
func (a Answer) Version() string {
	return string(a.Node.UID) + a.before.texts.request + a.before.texts.slot + a.Steps[0].Action + fmt.Sprint(a.records)
}

// answer adds the actions that are due for a Node.
func (d *Decision) answer(f Facts, h Host, held *holding, ahead outlook, now time.Time) {
	next := f.slot(h, held, ahead)
	if next != nil && next.Why != lost && next.Why != over && h.Request != nil && h.Request.Step == controlplane.RebootDraining {
		e := f.empty(h, *next, now)
		next = &e.Slot
		if h.Request.EmptiedByServer {
			d.Emptying[h.Name] = e
		}
		d.Evictions = append(d.Evictions, e.Evict...)
		d.soon(e.Next)
	}
	a := Answer{Node: h.Node, Slot: next, Unschedulable: h.Unschedulable, before: h, records: f.records(h, held, next)}
	had, has := h.Slot != nil && h.Slot.Cordoned, next != nil && next.Cordoned
	if had != has {
		a.Unschedulable = has
	}
	due, at := differ(h, next, now)
	d.soon(at)
	if held != nil && h.ended(held) {
		d.soon(h.SlotSince.Add(completeTime))
	}
	if due || a.Unschedulable != h.Unschedulable {
		a.Steps = []Step{stepOf(h, next)}
		d.Answers = append(d.Answers, a)
	}
}

// slot returns the answer that must be on the Node of a host.
func (f Facts) slot(h Host, held *holding, ahead outlook) *controlplane.RebootSlot {
	r := h.Request
	_, known := f.Policies[h.groupOf()]
	_, configured := f.Policies[h.Group]
	switch {
	case h.Err != nil:
		return h.Slot
	case held != nil && held.UID == h.UID:
		return h.mirror(held)
	case r == nil || !r.Step.NeedsSlot():
		return nil
	case h.Slot != nil && h.Slot.Granted != nil && (!known || f.unsure()):
		return h.Slot // the host keeps its slot if the group is not configured or cannot be read
	}
	if r.Step != controlplane.RebootWaiting {
		return without(h)
	}
	slot := &controlplane.RebootSlot{ID: r.ID}
	state := ahead.groups[h.Group]
	switch wait, waiting := ahead.waits[h.Name]; {
	case !configured:
		slot.Why, slot.Message = "group", "no group "+h.Group+" is configured on the servers"
	case !waiting || wait == nil && state.Holder(h.Name) != nil && !h.asksFor(state.Holder(h.Name)): // another request of the host has the slot
		w := state.WaitOf(h.Name)
		slot.Why, slot.Message = whyOf(w), w.Message
	case wait != nil && wait.Reason != slots.Unconfirmed:
		slot.Why, slot.Message = whyOf(*wait), wait.Message
	case h.Slot == nil || h.Slot.ID == r.ID && h.Slot.Granted == nil:
		return h.Slot // the host will get a slot
	}
	return slot
}

// whyOf is the Why of a waiting host. It is the same for all hosts that wait for others. The message says which
// others those are, and whether the request of this host is recorded.
func whyOf(w slots.Wait) string {
	switch w.Reason {
	case slots.Full, slots.Queued, slots.QueueFull, slots.OtherZone:
		return "turn"
	case slots.Unavailable, slots.Unseen:
		return "notReady"
	case slots.Paused:
		return "paused"
	}
	return "client"
}

// without is the answer for a host that reboots without a slot: the slot was released, or a person requested
// the reboot for now.
func without(h Host) *controlplane.RebootSlot {
	same := h.Slot != nil && h.Slot.ID == h.Request.ID
	switch {
	case same && (h.Slot.Granted != nil || h.Slot.Why == lost):
		slot := lose(*h.Slot)
		slot.Cordoned = slot.Cordoned && isDown(h.Request.Step)
		return &slot
	case !h.Request.EmptiedByServer || !mayBeCordoned(h.Request.Step):
		return nil
	case same && (h.Slot.Emptied || h.Slot.Failed || h.Slot.Cordoned):
		slot := *h.Slot
		return &slot
	}
	return &controlplane.RebootSlot{ID: h.Request.ID}
}

// mayBeCordoned reports whether the server may have cordoned the Node for the reboot.
func mayBeCordoned(s controlplane.RebootStep) bool {
	return s == controlplane.RebootDraining || isDown(s)
}

// isDown reports whether the host may be down.
func isDown(s controlplane.RebootStep) bool {
	return s == controlplane.RebootRebooting || s == controlplane.RebootVerifying
}

// differ reports whether the answer on a Node must be written now, or else when.
func differ(h Host, next *controlplane.RebootSlot, now time.Time) (bool, time.Time) {
	if h.Slot == nil || next == nil {
		return h.Slot != next, time.Time{}
	}
	was, is := *h.Slot, *next
	was.Message, is.Message = "", ""
	switch {
	case was.ID != is.ID || was.Slot != is.Slot || was.Why != is.Why || !was.Granted.Equal(is.Granted) || was.Emptied != is.Emptied || was.Failed != is.Failed || was.Cordoned != is.Cordoned:
		return true, time.Time{}
	case h.Slot.Message == next.Message:
		return false, time.Time{}
	}
	at := h.SlotSince.Add(refreshWaiting)
	if next.Cordoned || next.Granted != nil {
		at = h.SlotSince.Add(refreshEmptying)
	}
	return !at.After(now), at
}

// stepOf describes an answer.
func stepOf(h Host, next *controlplane.RebootSlot) Step {
	was := h.Slot
	if was == nil {
		was = &controlplane.RebootSlot{}
	}
	switch {
	case next == nil && was.Cordoned:
		return Step{"uncordon the Node, and remove the answer to its host", "the reboot is done, or was given up"}
	case next == nil:
		return Step{"remove the answer to the host", "it needs no slot any more"}
	case was.Cordoned && !next.Cordoned:
		return Step{"uncordon the Node", "it is not being emptied any more"}
	case !was.Failed && next.Failed:
		return Step{"report that the Node cannot be emptied", next.Message}
	case !was.Emptied && next.Emptied:
		return Step{"report that the Node is empty", "no pod has to leave it any more"}
	case !was.Cordoned && next.Cordoned:
		return Step{"cordon the Node", "its host reboots: " + h.Request.Reason}
	case was.Granted == nil && next.Granted != nil:
		return Step{"report the slot to the host", h.Request.Reason}
	case next.Why == over:
		return Step{"report that the slot has ended", next.Message}
	}
	return Step{"report to the host why it waits", next.Message}
}
