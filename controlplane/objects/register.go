package objects

import (
	"context"
	"errors"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"hostler.io/hostler/controlplane"
)

// Register creates the Node, or adopts or replaces the stored one. It replaces another machine's
// Node in one step: the new Node is stored under the same key.
func (c *Client) Register(ctx context.Context, node *corev1.Node, opts controlplane.RegisterOptions) (*corev1.Node, error) {
	if err := controlplane.CheckCall(ctx, "register node", node.Name); err != nil {
		return nil, err
	}
	ctx, cancel := controlplane.Bound(ctx, callTimeout)
	defer cancel()
	stored, err := c.read(ctx, node.Name)
	var lost error
	for range attempts {
		if err != nil && !errors.Is(err, controlplane.ErrNotFound) {
			break
		}
		var next *corev1.Node
		var others bool
		if next, others, err = c.nextNode(ctx, stored, node, opts); err != nil {
			break
		}
		if stored != nil && equality.Semantic.DeepEqual(stored, next) {
			return c.registered(stored, opts), nil
		}
		if others {
			c.setPending(&pendingReport{before: stored, uid: next.UID})
		}
		if next, lost = c.put(ctx, next, versionOf(stored)); lost == nil {
			return c.registered(next, opts), nil
		}
		if _, conflict := storedIn(lost); conflict && others {
			c.setPending(nil) // the takeover has failed
		}
		stored, err = refused(node.Name, lost)
	}
	if err == nil || errors.Is(err, controlplane.ErrNotFound) && !opts.AdoptOnly {
		err = lost
	}
	if _, taken := errors.AsType[*controlplane.IdentityError](err); taken {
		return nil, fmt.Errorf("register: %w", err)
	}
	return nil, fmt.Errorf("register node %q: %w", node.Name, err)
}

// nextNode returns the Node to store instead of the stored one, which is nil if there is none. others
// reports whether another machine yields.
func (c *Client) nextNode(ctx context.Context, stored, desired *corev1.Node, opts controlplane.RegisterOptions) (next *corev1.Node, others bool, err error) {
	from := stored
	switch {
	case stored == nil && opts.AdoptOnly:
		return nil, false, controlplane.ErrNotFound
	case stored == nil:
		next, err = controlplane.NewNode(desired)
	default:
		if others, err = c.claim(ctx, stored, desired, opts); err != nil {
			return nil, false, err
		}
		switch {
		case others && (opts.AdoptOnly || controlplane.Reports(stored, desired)):
			next, err = controlplane.TakeOver(stored, desired)
		case others:
			next, err = controlplane.Replace(stored, desired)
			from = nil
		default:
			next, err = controlplane.Adopt(stored, desired)
		}
	}
	if err != nil {
		return nil, false, err
	}
	if !c.o.KeepTaints {
		if err := controlplane.ReconcileTaints(next, from, desired); err != nil {
			return nil, false, err
		}
	}
	controlplane.TaintCordon(next, c.o.Now())
	if next.UID == "" { // also if a person has written the stored Node without a UID
		c.initialize(next)
	}
	return next, others, nil
}

// claim reports whether the stored Node belongs to another machine that yields.
func (c *Client) claim(ctx context.Context, stored, desired *corev1.Node, opts controlplane.RegisterOptions) (bool, error) {
	if !controlplane.Disputed(stored, desired) {
		return controlplane.Claim(stored, desired, nil, opts)
	}
	lease, err := c.Lease(ctx, stored.Name)
	switch {
	case errors.Is(err, controlplane.ErrNotFound): // it has ended
		opts.Lost = opts.Lost && !c.heldLease(stored)
	case err != nil && !errors.Is(err, controlplane.ErrUnreadable):
		return false, err
	}
	return controlplane.Claim(stored, desired, lease, opts)
}

// pendingReport is another machine's Node that the Node with that UID replaces. If the store's
// answer is lost, the next successful registration reports it.
type pendingReport struct {
	before *corev1.Node
	uid    types.UID
}

func (c *Client) setPending(o *pendingReport) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pending = o
}

// registered records the stored Node as this machine's, and returns a copy.
func (c *Client) registered(stored *corev1.Node, opts controlplane.RegisterOptions) *corev1.Node {
	c.learn(stored)
	c.mu.Lock()
	o := c.pending
	c.pending, c.holder = nil, holder{}
	c.mu.Unlock()
	if o != nil && o.before.Name == stored.Name && o.uid == stored.UID {
		opts.Replaced(o.before.DeepCopy())
	}
	return stored.DeepCopy()
}

// holder is the machine that held the Lease when it was last read.
type holder struct {
	lease   string // its name
	machine controlplane.Identity
}

// recordHolder records the holder of a Lease that was read.
func (c *Client) recordHolder(lease *coordinationv1.Lease) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.holder = holder{lease.Name, controlplane.HolderOf(lease)}
}

// heldLease reports whether the Node's machine was seen to hold the Node's Lease.
func (c *Client) heldLease(node *corev1.Node) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	had := c.holder.machine
	return c.holder.lease == node.Name && had != (controlplane.Identity{}) && !had.Differs(controlplane.IdentityOf(node))
}
