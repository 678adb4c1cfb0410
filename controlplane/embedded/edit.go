package embedded

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane"
)

// Edit changes the stored Node as someone else would, if there were anyone: the agent
// does not. It implements conformance.Editor.
func (c *Client) Edit(_ context.Context, name string, change func(*corev1.Node)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.node == nil || c.node.Name != name {
		return controlplane.ErrNotFound
	}
	node := c.node.DeepCopy()
	change(node)
	_, err := c.putNode(node)
	return err
}
