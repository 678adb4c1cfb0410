package reboot

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"hostler.io/hostler/controlplane"
)

// facts collects the facts for a decision.
func (c *Controller) facts(ctx context.Context, r Request) Facts {
	n, host := &c.round.node, c.o.Host
	f := Facts{
		Now: c.o.Now(), Boot: c.o.Boot, Drain: c.round.drain.progress(), Command: c.round.command.progress(),
		Last: c.round.last.progress(), LastTook: c.round.last.took(),
		GoingDown: host.GoingDown(), NotStarted: host.NotStarted(), Unknown: host.Unknown(), Disabled: c.o.Change.Disabled,
	}
	f.Unannounced = c.announce(ctx, r)
	f.OtherGroup, f.Gone = c.otherGroup(), c.gone()
	f.OtherLock, f.Owed = c.otherLock(r)
	switch f.NotReady = host.NodeBlocked(); {
	case f.NotReady != "":
	case host.HasNode():
		if f.NotReady = n.notReady(c.o.Boot); f.NotReady == "" {
			f.ReadyFor = time.Since(n.ready)
		}
	default:
		f.ReadyFor = mostTook
	}
	if f.OtherLock == "" && !f.Disabled && (!r.Now || host.EmptiedByServer()) {
		f.Turn = c.turn(ctx, r)
	}
	if host.EmptiedByServer() {
		f.Drain.Done = f.Turn.Emptied
	}
	if r.Step == controlplane.RebootWanted || r.Step == controlplane.RebootWaiting || r.Step == controlplane.RebootGranted {
		f.Held = host.Held()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case !f.Turn.Unanswered:
		c.unanswered = time.Time{}
	case c.unanswered.IsZero():
		c.unanswered = time.Now()
	}
	c.found.held = f.Held
	f.Longest = c.memory.longest()
	f.Wanted, _ = c.memory.unwaived(c.o.Boot, c.found.wanted)
	f.Undecided = c.found.undecided
	return f
}

// announce reads the Node, and writes the step there. It returns why the step is not there. That is empty if it
// is, or need not be. Before the steps that cannot be undone, it reads the Node even if a watch runs: the slot may
// have been released since.
func (c *Controller) announce(ctx context.Context, r Request) string {
	n := &c.round.node
	if !c.o.Host.HasNode() {
		n.forget()
		return c.o.Host.NodeBlocked()
	}
	live := r.Step == controlplane.RebootGranted || r.Step == controlplane.RebootRebooting
	n.read(ctx, c.o.Boot, live)
	if !c.o.Lock.OnNode() && !c.withdraws(r) {
		return ""
	}
	why := n.announce(ctx, r.published(c.o.Host.EmptiedByServer()), c.o.Boot)
	if n.err != nil && (why != "" || live) {
		return n.err.Error()
	}
	return why
}

// withdraws reports whether the Node still requests a slot of `hostler server`, as an earlier configuration did,
// and this step withdraws that.
func (c *Controller) withdraws(r Request) bool {
	if n := c.round.node.stored; n != nil && !r.Step.NeedsSlot() {
		on, err := controlplane.RebootOf(n.Annotations)
		return err == nil && on != nil && on.Step.NeedsSlot()
	}
	return false
}

// gone says why the host has no Node of its own any more, so that others may get its slot; empty if it has one, or
// needs none.
func (c *Controller) gone() string {
	if _, alone := c.o.Lock.(Alone); alone {
		return ""
	}
	switch {
	case c.o.Host.Left():
		return "the host has left the control plane"
	case !c.o.Host.HasNode():
		return ""
	}
	return c.round.node.gone
}

// otherLock says whether an attempt has the lock of an earlier configuration: either that the attempt must end, or
// that its lock must still be given back.
func (c *Controller) otherLock(r Request) (ends, owed string) {
	switch {
	case !c.formerly(r.Attempt):
		return "", ""
	case r.Step == controlplane.RebootWanted:
		return "", fmt.Sprintf("the slot of the earlier configuration is not given back yet: %s", r.Attempt.Lock)
	}
	return fmt.Sprintf("the configuration has changed: the slot is of %s, and not of %s", r.Attempt.Lock, c.o.Change.ID), ""
}

// otherGroup returns an error text if the Node is not in the group of the host: the host would get a slot of another
// group. Beside a kubelet, only a person sets the label.
func (c *Controller) otherGroup() string {
	n := c.round.node.stored
	if c.o.Group == "" || n == nil {
		return ""
	}
	group := cmp.Or(n.Labels[controlplane.LabelRebootGroup], controlplane.DefaultRebootGroup)
	if group == c.o.Group {
		return ""
	}
	why := fmt.Sprintf("the Node is in group %s, and `reboot.group` is %s", group, c.o.Group)
	if c.o.Host.EmptiedByServer() {
		why += fmt.Sprintf(": run `kubectl label --overwrite node %s %s=%s`", c.o.Node, controlplane.LabelRebootGroup, c.o.Group)
	}
	return why
}

// turn requests the lock. Before that, it is on the disk that the lock may be held.
func (c *Controller) turn(ctx context.Context, r Request) Turn {
	if r.Step == controlplane.RebootWanted {
		return Turn{}
	}
	if r.Step == controlplane.RebootWaiting && !r.Attempt.Locked { // stored by an earlier version
		err := c.amend(ctx, func(r *Request) { r.Attempt.Locked, r.Attempt.Lock = true, c.o.Change.ID })
		if err != nil {
			return Turn{Message: fmt.Sprintf("cannot store that a slot is requested: %v", err)}
		}
	}
	return c.o.Lock.Turn(ctx, &r, c.round.node.stored)
}
