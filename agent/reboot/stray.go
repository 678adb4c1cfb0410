package reboot

import (
	"cmp"
	"context"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane"
)

// Stored takes the Node as the control plane has it. It may have a request that this host does not have any more:
// the control plane was restored from a backup, or the host has lost its memory. Servers would give that request a
// slot, and wait for its end. The next round withdraws it.
func (c *Controller) Stored(node *corev1.Node) {
	if controlplane.ReporterOf(node).Differs(c.o.Machine) {
		return
	}
	on, err := controlplane.RebootOf(node.Annotations)
	if err != nil || on == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.memory.Request
	if r.active() || on.Step == controlplane.RebootDone || r != nil && r.ID == on.ID && r.Step == on.Step {
		return // each round of an active request writes the Node if it differs
	}
	c.stray = on.ID // without a wake: a control plane must not set the pace of writes
}

// withdraw writes on the Node that a request is over that the host does not have. The last request of the host does
// that, if there is one.
func (c *Controller) withdraw(ctx context.Context, last *Request) {
	c.mu.Lock()
	id := c.stray
	c.stray = ""
	c.mu.Unlock()
	if id == "" {
		return
	}
	if last != nil {
		c.round.settled = ""
		return
	}
	now := c.o.Now()
	over := Request{ID: id, Step: controlplane.RebootDone, Since: now, Wanted: now, Reason: "the host does not know of this request"}
	why := c.announce(ctx, over)
	if why != "" {
		c.mu.Lock()
		c.stray = cmp.Or(c.stray, id)
		c.mu.Unlock()
	}
	end := withdrawal{id, why == ""}
	switch {
	case end == c.withdrawn: // a control plane must not fill the log
	case end.written:
		c.log.Info("withdrew a request to reboot that the host does not have", "id", id)
	default:
		c.log.Warn("cannot withdraw a request to reboot that the host does not have, retrying", "id", id, "error", why)
	}
	c.withdrawn = end
}

// withdrawal is the end of an attempt to withdraw a request.
type withdrawal struct {
	id      string
	written bool
}
