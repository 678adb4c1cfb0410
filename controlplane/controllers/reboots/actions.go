package reboots

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controllers/podcache"
	"hostler.io/hostler/controlplane/slots"
	"hostler.io/hostler/controlplane/store"
)

// blockedLong is how long the eviction of a pod may be refused before an Event reports it.
const blockedLong = 5 * time.Minute

// Event reports a step of a reboot on a Node.
type Event struct {
	Node    string
	Type    string // corev1.EventTypeNormal or EventTypeWarning
	Reason  string
	Message string
}

// event publishes an Event about a Node.
func (c *Controller) event(node, kind, reason, message string) {
	if c.OnEvent != nil {
		c.OnEvent(Event{node, kind, reason, message})
	}
}

// write changes a group. It first reads the Nodes of the slots to free again, because the watch may be late. It
// frees a slot only if its Node does not exist, or its host needs no slot.
func (change Change) write(ctx context.Context, c *Controller, term store.Term) error {
	policy, err := c.policy(change.Group)
	if err != nil {
		return err
	}
	f, err := c.all(time.Now())
	if err != nil {
		return err
	}
	nodes := f.nodes(f.held())
	confirmed := Change{Group: change.Group, Requests: change.Requests}
	for _, o := range slices.Concat(change.Deleted, change.Done, change.Released) {
		if err := c.confirm(ctx, &confirmed, o); err != nil {
			return err
		}
	}
	var before, after slots.State
	var granted []slots.Client
	err = c.give(ctx, change.Group, term, func(s *slots.State) error {
		s.Confirm(f.Confirmed, f.due(change.Group))
		before = *s
		if confirmed.Adopted, err = c.confirmAdopted(ctx, change.Adopted, nodes); err != nil {
			return err
		}
		granted = confirmed.apply(s, policy, nodes, c.self, time.Now())
		after = *s
		return nil
	})
	if err != nil {
		c.reread.Send()
		return err
	}
	if confirmed.note(before, after, granted); len(confirmed.Steps) == 0 { // the watch was late, or another client was faster
		return fmt.Errorf("change group %s: %w: nothing is left to do", change.Group, controlplane.ErrConflict)
	}
	c.changedGroup(before, after, granted)
	return nil
}

// confirmAdopted returns the hosts whose stored Nodes say that they are amid a reboot. It is called after the record
// was read: a person who releases a slot changes the Node first, then the record.
func (c *Controller) confirmAdopted(ctx context.Context, clients []slots.Client, nodes slots.Nodes) (confirmed []slots.Client, err error) {
	for _, a := range clients {
		node, err := c.store.Get(ctx, store.Nodes.Metadata(), a.ID)
		if errors.Is(err, controlplane.ErrNotFound) || errors.Is(err, store.ErrUnreadable) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if h := hostOf(node); node.GetUID() == nodes[a.ID].UID && h.reboots() && h.Request.ID == a.Request {
			confirmed = append(confirmed, a)
		}
	}
	return confirmed, nil
}

// confirm adds a slot to those that a change frees, if the stored Node of its holder says that it has ended.
func (c *Controller) confirm(ctx context.Context, change *Change, o slots.Holder) error {
	node, err := c.store.Get(ctx, store.Nodes.Metadata(), o.Node)
	switch {
	case errors.Is(err, controlplane.ErrNotFound), err == nil && node.GetUID() != o.UID:
		change.Deleted = append(change.Deleted, o)
	case errors.Is(err, store.ErrUnreadable): // its host may have made it so: it keeps the slot, and delays nobody else
	case err != nil:
		return err
	case o.Type == slots.Agent:
		change.free(hostOf(node), &holding{Holder: o, group: change.Group}, time.Now())
	}
	return nil
}

// changedGroup logs which slots were given and freed.
func (c *Controller) changedGroup(before, after slots.State, granted []slots.Client) {
	for _, o := range before.Holders {
		if after.Holder(o.ID) == nil || !after.Holder(o.ID).Since.Equal(&o.Since) {
			c.log.Info("slot freed", "id", o.ID, "by", o.Type)
		}
	}
	for _, g := range granted {
		c.log.Info("gave slot", "id", g.ID, "by", g.Type, "reason", g.Reason)
	}
}

// write changes a Node. It returns ErrConflict if the host has changed its request meanwhile, or if the record of a
// group has changed that the answer depends on.
func (a Answer) write(ctx context.Context, c *Controller, term store.Term) error {
	emptied := a.Slot != nil && a.Slot.Emptied && (a.before.Slot == nil || !a.before.Slot.Emptied)
	if emptied {
		if err := c.confirmEmpty(ctx, a.Node.Name); err != nil {
			return err
		}
	}
	kind := store.Nodes.Metadata()
	if emptied || a.Unschedulable != a.before.Unschedulable {
		kind = store.Nodes
	}
	pre := store.Preconditions{UID: a.Node.UID, Term: term}
	for _, r := range a.records {
		pre.Others = append(pre.Others, c.groups.At(r.group, r.version))
	}
	_, err := c.store.Update(ctx, kind, a.Node.Name, pre, func(o store.Object) error {
		if textsOf(o) != a.before.texts {
			return a.conflict()
		}
		if node, is := o.(*corev1.Node); is {
			if node.Spec.Unschedulable != a.before.Unschedulable {
				return a.conflict()
			}
			node.Spec.Unschedulable = a.Unschedulable
		}
		return setSlot(o, a.Slot)
	})
	switch {
	case err == nil:
		c.answered(a)
	case len(a.records) > 0 && errors.Is(err, controlplane.ErrConflict):
		c.reread.Send() // another server may have changed a group
	}
	return err
}

// setSlot writes the answer on a Node; nil removes it.
func setSlot(o store.Object, slot *controlplane.RebootSlot) error {
	annotations := maps.Clone(o.GetAnnotations())
	if annotations == nil {
		annotations = map[string]string{}
	}
	delete(annotations, controlplane.AnnotationRebootSlot)
	if slot != nil {
		text, err := json.Marshal(slot)
		if err != nil {
			return fmt.Errorf("%w: %w", controlplane.ErrInvalid, err)
		}
		annotations[controlplane.AnnotationRebootSlot] = string(text)
	}
	o.SetAnnotations(annotations)
	return nil
}

func (a Answer) conflict() error {
	return fmt.Errorf("answer node %q: %w: its host has changed its request, or another client the Node", a.Node.Name, controlplane.ErrConflict)
}

// confirmEmpty reads the Node's pods from the store, because the watch may be late. It returns ErrConflict if a
// pod still has to leave.
func (c *Controller) confirmEmpty(ctx context.Context, node string) error {
	pods, err := c.evicter.PodsOn(ctx, node)
	if err != nil {
		return err
	}
	for _, pod := range pods {
		if !podcache.Stays(pod) {
			return fmt.Errorf("node %q: %w: pod %s/%s is still there", node, controlplane.ErrConflict, pod.GetNamespace(), pod.GetName())
		}
	}
	return nil
}

// answered logs important changes of a Node, and publishes Events about them.
func (c *Controller) answered(a Answer) {
	was, is := a.before.Slot, a.Slot
	if was == nil {
		was = &controlplane.RebootSlot{}
	}
	if is == nil {
		is = &controlplane.RebootSlot{}
	}
	name := a.Node.Name
	switch {
	case was.Granted == nil && is.Granted != nil:
		c.event(name, corev1.EventTypeNormal, "RebootSlotGranted", "the host may reboot now: "+a.before.Request.Reason)
	case !was.Emptied && is.Emptied:
		c.log.Info("Node emptied for its reboot", "node", name)
		c.event(name, corev1.EventTypeNormal, "RebootNodeEmptied", "no pod has to leave the Node any more")
	case !was.Failed && is.Failed:
		c.log.Warn("cannot empty Node for its reboot", "node", name, "reason", is.Message)
		c.event(name, corev1.EventTypeWarning, "RebootNodeNotEmptied", is.Message)
	}
	if a.Unschedulable != a.before.Unschedulable {
		c.log.Info(map[bool]string{true: "cordoned Node", false: "uncordoned Node"}[a.Unschedulable], "node", name)
	}
}

// write evicts a pod. It returns ErrConflict if the Node's host has changed its request meanwhile.
func (e Eviction) write(ctx context.Context, c *Controller, term store.Term) error {
	node, err := c.store.Get(ctx, store.Nodes.Metadata(), e.Pod.Node)
	if err != nil {
		return err
	}
	if host := hostOf(node); host.UID != e.NodeUID || host.texts.request != e.request || host.released() {
		return fmt.Errorf("evict pod %q: %w: its Node is not to be emptied any more", e.Pod.Name, controlplane.ErrConflict)
	}
	err = c.evicter.Evict(ctx, e.Pod.Name, e.Pod.UID, term)
	switch blocked, is := errors.AsType[*store.BlockedError](err); {
	case is:
		c.block(e.Pod, blocked.Message)
		return fmt.Errorf("%w: %w", controlplane.ErrConflict, err)
	case err == nil:
		c.log.Info("pod evicted", "pod", e.Pod.Name, "node", e.Pod.Node)
	case !errors.Is(err, controlplane.ErrNotFound) && !errors.Is(err, controlplane.ErrConflict) && !errors.Is(err, store.ErrDeposed) && ctx.Err() == nil:
		c.block(e.Pod, err.Error())
	}
	return err
}

// block records that a pod cannot be evicted now.
func (c *Controller) block(pod podcache.Pod, message string) {
	now := time.Now()
	b := Blocked{Pod: pod.Name, UID: pod.UID, Node: pod.Node, Message: message, Since: now, Until: now.Add(evictPause)}
	c.mu.Lock()
	before, known := c.blocked[pod.Name]
	if known = known && before.UID == pod.UID; known {
		b.Since, b.evented = before.Since, before.evented
	}
	long := !b.evented && now.Sub(b.Since) >= blockedLong
	b.evented = b.evented || long
	c.blocked[pod.Name] = b
	c.mu.Unlock()
	if !known {
		c.log.Warn("pod cannot be evicted now, retrying", "pod", pod.Name, "node", pod.Node, "reason", message)
	}
	if long {
		c.event(pod.Node, corev1.EventTypeWarning, "RebootPodBlocked", fmt.Sprintf("pod %s cannot be evicted: %s", pod.Name, message))
	}
	c.changed.Send()
}

// decided records since when requests are due, and removes the records of pods that need no eviction any more.
func (c *Controller) decided(d Decision) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.due = d.Due
	for name, b := range c.blocked {
		if !slices.ContainsFunc(d.Emptying[b.Node].Left, func(pod podcache.Pod) bool { return pod.Name == name && pod.UID == b.UID && !pod.Deleting }) {
			delete(c.blocked, name)
			c.log.Info("pod is no longer in the way of a reboot", "pod", name, "node", b.Node)
		}
	}
}
