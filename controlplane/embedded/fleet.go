package embedded

import (
	"context"
	"fmt"

	"hostler.io/hostler/controlplane"
)

// Fleet tells of the one Node that there can be.
func (c *Client) Fleet(ctx context.Context, each controlplane.Member) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("list nodes: %w", context.Cause(ctx))
	}
	c.mu.Lock()
	node := c.node.DeepCopy()
	lease := c.lease.DeepCopy()
	c.mu.Unlock()
	if node == nil {
		return nil
	}
	if lease != nil && lease.Name != node.Name { // of another name before
		lease = nil
	}
	return each(node, lease)
}
