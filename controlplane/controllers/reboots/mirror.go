package reboots

import (
	"context"
	"errors"
	"strings"
	"time"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/slots"
	"hostler.io/hostler/controlplane/store"
)

// The record of a group decides who holds a slot. The annotation of the Node mirrors it. These are the rules, for
// stores that compare only one object in a write, as Kubernetes does:
//
//   - Granted is written for a slot only if the record had the holder after the Node was read.
//   - It is never written over the answer that this slot has ended.
//   - The record loses the holder only after the Node had that answer, or is gone, or after the host is done; for a
//     person, also if the Node cannot be read.
//   - That answer is replaced only if the record had no such holder after the Node was read.
//
// docs/explanation/reboot-slots.md has all steps.

// Reasons of an answer that a slot has ended.
const (
	lost = "lost" // a person released it
	over = "over" // the host does not need it any more
)

// completeTime is how long a server may take to free a slot for a person, before the leader does it.
const completeTime = 30 * time.Second

// holding is the slot of an agent, with the record that has it.
type holding struct {
	slots.Holder
	group, version string
}

// name is GROUP/NUMBER of the slot.
func (o *holding) name() string { return o.Name(o.group) }

// held returns the slots of agents, by Node. It searches all groups, since a Node may have changed its group. If a
// Node has several slots, one that its annotation names as ended comes first, and then that of its present request.
func (f Facts) held() map[string]*holding {
	held := map[string]*holding{}
	for group := range f.Policies {
		k := f.Groups[group]
		for _, h := range k.Holders {
			if h.Type != slots.Agent {
				continue
			}
			o, host := &holding{h, group, k.Version}, f.Hosts[h.ID]
			if other := held[h.ID]; other == nil || host.ended(o) || host.holds(o) && !host.ended(other) {
				held[h.ID] = o
			}
		}
	}
	return held
}

// holds reports whether a slot belongs to the host's current request.
func (h Host) holds(o *holding) bool {
	return o != nil && h.Request != nil && o.UID == h.UID && o.Client.Request == h.Request.ID
}

// granted reports whether the Node says that the host has the slot. A server of an earlier version does not name it.
func (h Host) granted(o *holding) bool {
	s := h.Slot
	if s == nil || s.Granted == nil || s.ID != o.Client.Request {
		return false
	}
	return s.Slot == o.name() || s.Slot == "" && s.Granted.Equal(&o.Since)
}

// ended reports whether the Node says that the slot has ended. A server of an earlier version does not name it.
func (h Host) ended(o *holding) bool {
	s := h.Slot
	if s == nil || s.Granted != nil || o.UID != h.UID {
		return false
	}
	return s.Slot == o.name() || s.Slot == "" && s.Why == lost && s.ID == o.Client.Request
}

// finished reports whether the host is done with the request of the slot. It never needs the slot again.
func (h Host) finished(o *holding) bool {
	return h.Err == nil && h.holds(o) && h.Request.Step == controlplane.RebootDone
}

// released reports whether the Node says that a person has released the slot of the host's current request.
func (h Host) released() bool {
	return h.Slot != nil && h.Request != nil && h.Slot.ID == h.Request.ID && h.Slot.Why == lost
}

// frees says how a slot ends that the host holds in the record; empty if it does not end yet. It is only true of a
// host whose Node says so: the slot cannot be granted again then.
func (h Host) frees(o *holding, now time.Time) slots.ReleaseCause {
	switch {
	case h.ended(o) && h.Slot.Why != lost, h.finished(o) && h.Slot == nil:
		return slots.GivenBack
	case h.ended(o) && now.Sub(h.SlotSince) >= completeTime:
		return slots.Released // the server that was to free it for a person has stopped
	}
	return ""
}

// mirror returns the answer for a host that holds a slot in the record: that it has the slot, or that the slot has
// ended.
func (h Host) mirror(o *holding) *controlplane.RebootSlot {
	needs := h.holds(o) && h.Request.Step.NeedsSlot()
	switch {
	case h.ended(o):
		slot := *h.Slot
		slot.Slot = o.name()
		slot.Cordoned = slot.Cordoned && needs && isDown(h.Request.Step)
		return &slot
	case needs:
		slot := controlplane.RebootSlot{ID: h.Request.ID, Slot: o.name(), Granted: o.Since.DeepCopy()}
		switch {
		case h.granted(o) && mayBeCordoned(h.Request.Step):
			slot = *h.Slot
		case h.granted(o):
			slot.Slot = h.Slot.Slot
		}
		return &slot
	case h.finished(o):
		return nil
	}
	return &controlplane.RebootSlot{ID: o.Client.Request, Slot: o.name(), Why: over, Message: "the host did not need the slot any more"}
}

// lose returns the answer for a host whose slot was released.
func lose(was controlplane.RebootSlot) controlplane.RebootSlot {
	return controlplane.RebootSlot{ID: was.ID, Slot: was.Slot, Why: lost, Message: "the slot was released", Cordoned: was.Cordoned}
}

// groupOf is the group of the slot that the Node names; that of the Node if it names none.
func (h Host) groupOf() string {
	if h.Slot != nil {
		if group, _, named := strings.Cut(h.Slot.Slot, "/"); named {
			return group
		}
	}
	return h.Group
}

// record is the version that the record of a group must have.
type record struct{ group, version string }

// records are the records that must be unchanged when an answer is written on the Node: the one that has the holder,
// for a new grant, and the one that does not have it any more, for an answer after the end of a slot.
func (f Facts) records(h Host, held *holding, next *controlplane.RebootSlot) (list []record) {
	if next != nil && next.Granted != nil && held != nil && !h.granted(held) {
		list = append(list, record{held.group, held.version})
	}
	if h.Slot == nil || h.Slot.Granted != nil || h.Slot.Slot == "" || next != nil && next.Granted == nil && next.Slot == h.Slot.Slot {
		return list
	}
	group := h.groupOf()
	if k, read := f.Groups[group]; read && k.Err == nil && (len(list) == 0 || list[0].group != group) {
		list = append(list, record{group, k.Version})
	}
	return list
}

// end writes on the Node of a holder that a person has released its slot. That must be before the slot is free. A Node
// that cannot be read says nothing: its host made it so, and must not keep the slot by that.
func (c *Controller) end(ctx context.Context, o *holding) error {
	for attempt := 1; ; attempt++ {
		_, err := c.store.Update(ctx, store.Nodes.Metadata(), o.Node, store.Preconditions{}, func(node store.Object) error {
			host := hostOf(node)
			if host.UID != o.UID || host.ended(o) && host.Slot.Slot != "" {
				return nil
			}
			next := controlplane.RebootSlot{ID: o.Client.Request}
			if host.Slot != nil && host.Slot.ID == next.ID {
				next = *host.Slot
			}
			next.Slot = o.name()
			next = lose(next)
			return setSlot(node, &next)
		})
		switch {
		case errors.Is(err, controlplane.ErrNotFound), errors.Is(err, store.ErrUnreadable):
			return nil
		case !errors.Is(err, controlplane.ErrConflict) || attempt == attempts:
			return err
		}
	}
}

// hostOf returns what the metadata of a Node say about reboots.
func hostOf(node store.Object) Host {
	h := Host{Node: slots.Node{Name: node.GetName(), UID: node.GetUID()}, texts: textsOf(node)}
	h.Request, h.Slot, h.Err = h.texts.read()
	return h
}
