package embedded

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane"
)

// Cordon sets spec.unschedulable, and the taint that goes with it.
func (c *Client) Cordon(ctx context.Context, name string, unschedulable bool) (*corev1.Node, error) {
	if err := controlplane.CheckCall(ctx, "cordon node", name); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.node == nil || c.node.Name != name {
		return nil, fmt.Errorf("cordon node %q: %w", name, controlplane.ErrNotFound)
	}
	updated := c.node.DeepCopy()
	updated.Spec.Unschedulable = unschedulable
	return c.putNode(updated)
}
