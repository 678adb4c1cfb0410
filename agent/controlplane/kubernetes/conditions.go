package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"hostler.io/hostler/agent/controlplane"
)

// UpdateConditions patches the conditions alone, whatever else the Node's owner
// writes meanwhile: conditions merge by their type. Whose the Node is is read once.
func (c *Client) UpdateConditions(ctx context.Context, node *corev1.Node) (*corev1.Node, error) {
	if err := check(ctx, "update conditions of node", node.Name); err != nil {
		return nil, err
	}
	ctx, cancel := bound(ctx, callTimeout)
	defer cancel()
	operation := fmt.Sprintf("update conditions of node %q", node.Name)
	base := c.knownOf(node.Name)
	var err error
	for range attempts {
		if base == nil {
			if base, err = c.read(ctx, node.Name); err != nil {
				return nil, fmt.Errorf("%s: %w", operation, err)
			}
		}
		if theirs, ours := controlplane.IdentityOf(base.node), controlplane.IdentityOf(node); theirs.Differs(ours) {
			c.forget()
			return nil, fmt.Errorf("%s: %w", operation, &controlplane.IdentityError{Name: node.Name, Theirs: theirs, Ours: ours})
		}
		var patch []byte
		if patch, err = conditionsPatch(base.node.UID, node.Status.Conditions); err != nil {
			break
		}
		var stored *corev1.Node
		if stored, err = c.patch(ctx, "patch node", node.Name, patch, "status"); err == nil {
			c.learn(stored)
			return stored, nil
		}
		c.forget()
		base = nil // another may have its name
		if !errors.Is(err, controlplane.ErrConflict) {
			break
		}
	}
	return nil, fmt.Errorf("%s: %w", operation, err)
}

// conditionsPatch is the strategic merge patch that puts conditions on the Node of
// that UID.
func conditionsPatch(uid types.UID, conditions []corev1.NodeCondition) ([]byte, error) {
	patch := map[string]any{
		"metadata": map[string]any{"uid": uid},
		"status":   map[string]any{"conditions": conditions},
	}
	text, err := json.Marshal(patch)
	if err != nil {
		return nil, fmt.Errorf("make patch: %w: %w", controlplane.ErrInvalid, err)
	}
	return text, nil
}
