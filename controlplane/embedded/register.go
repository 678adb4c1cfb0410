package embedded

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/controlplane"
)

// Register creates or adopts the Node. A Node and Lease of another name go,
// since a host that was renamed is still one host.
func (c *Client) Register(ctx context.Context, node *corev1.Node, opts controlplane.RegisterOptions) (*corev1.Node, error) {
	if err := controlplane.CheckCall(ctx, "register node", node.Name); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.node == nil || c.node.Name != node.Name {
		if opts.AdoptOnly {
			return nil, fmt.Errorf("register node %q: %w", node.Name, controlplane.ErrNotFound)
		}
		created, err := controlplane.NewNode(node)
		if err != nil {
			return nil, fmt.Errorf("register: %w", err)
		}
		return c.create(created)
	}
	before := c.node
	lease := c.leaseOf(node.Name)
	if c.past { // who kept it has ended: the store is one agent's at a time
		lease = nil
	}
	others, err := controlplane.Claim(before, node, lease, opts)
	if err != nil {
		return nil, fmt.Errorf("register: %w", err)
	}
	become, put := controlplane.Adopt, c.putNode
	switch {
	case others && (opts.AdoptOnly || controlplane.Reports(before, node)):
		become = controlplane.TakeOver
	case others:
		become, put = controlplane.Replace, c.create
	}
	next, err := become(before, node)
	if err != nil {
		return nil, fmt.Errorf("register: %w", err)
	}
	if others && c.past {
		c.dropLease()
	}
	stored, err := put(next)
	if err == nil && others {
		opts.Replaced(before.DeepCopy())
	}
	return stored, err
}

// create stores a Node under a UID of its own.
func (c *Client) create(created *corev1.Node) (*corev1.Node, error) {
	if c.node != nil && c.node.Name != created.Name {
		c.log.Info("node has a new name, forgetting the old one", "old", c.node.Name, "new", created.Name)
	}
	if c.lease != nil && c.lease.Name != created.Name {
		c.dropLease()
	}
	created.UID = newUID()
	created.CreationTimestamp = metav1.NewTime(c.now().Truncate(time.Second))
	return c.putNode(created)
}

// dropLease forgets the Lease for the sake of a Node that is registered.
func (c *Client) dropLease() {
	c.lease = nil
	c.leases.Save(c.storedLease)
}
