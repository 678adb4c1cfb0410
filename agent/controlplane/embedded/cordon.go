package embedded

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/agent/controlplane"
)

// Cordon sets spec.unschedulable, and the taint that goes with it.
func (c *Client) Cordon(ctx context.Context, name string, unschedulable bool) (*corev1.Node, error) {
	if err := check(ctx, "cordon node", name); err != nil {
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

// taint gives a Node that is cordoned the taint that Kubernetes' node lifecycle
// controller gives it, and takes it from one that is not.
func (c *Client) taint(node *corev1.Node) {
	ours := func(t corev1.Taint) bool {
		return t.Key == corev1.TaintNodeUnschedulable && t.Effect == corev1.TaintEffectNoSchedule
	}
	switch has := slices.ContainsFunc(node.Spec.Taints, ours); {
	case node.Spec.Unschedulable && !has:
		now := metav1.NewTime(c.now().Truncate(time.Second))
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule, TimeAdded: &now})
	case !node.Spec.Unschedulable && has:
		node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, ours)
	}
}
