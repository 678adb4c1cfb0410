package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane"
)

// UpdateConditions patches only the conditions, which merge by type, so other clients may change
// the Node at the same time. It reads the owner of the Node once. If conditions are removed, the
// Node must not have changed since it was last read.
func (c *Client) UpdateConditions(ctx context.Context, node *corev1.Node, gone []corev1.NodeConditionType) (*corev1.Node, error) {
	if err := controlplane.CheckCall(ctx, "update conditions of node", node.Name); err != nil {
		return nil, err
	}
	ctx, cancel := controlplane.Bound(ctx, callTimeout)
	defer cancel()
	operation := fmt.Sprintf("update conditions of node %q", node.Name)
	base := c.knownOf(node.Name)
	var err error
	for range attempts {
		fresh := base == nil
		if fresh {
			if base, err = c.read(ctx, node.Name); err != nil {
				return nil, fmt.Errorf("%s: %w", operation, err)
			}
		}
		if theirs, ours := controlplane.ReporterOf(base.node), controlplane.IdentityOf(node); theirs.Differs(ours) {
			c.forget()
			if !fresh { // it may have another owner now
				base = nil
				continue
			}
			return nil, fmt.Errorf("%s: %w", operation, &controlplane.IdentityError{Name: node.Name, Theirs: theirs, Ours: ours})
		}
		var patch []byte
		if patch, err = conditionsPatch(base.node, node.Status.Conditions, gone); err != nil {
			break
		}
		var stored *corev1.Node
		if stored, err = c.patch(ctx, "patch node", base.node, patch, "status"); err == nil {
			c.learn(stored)
			return stored, nil
		}
		c.forget()
		base = nil // another client may own the name now
		if !errors.Is(err, controlplane.ErrConflict) || len(gone) > 0 {
			break
		}
	}
	return nil, fmt.Errorf("%s: %w", operation, err)
}

// conditionsPatch returns the strategic merge patch that sets conditions on the Node of that UID.
// It removes the types in gone if the Node still has that version.
func conditionsPatch(stored *corev1.Node, conditions []corev1.NodeCondition, gone []corev1.NodeConditionType) ([]byte, error) {
	metadata := map[string]any{"uid": stored.UID}
	list := make([]any, 0, len(conditions)+len(gone))
	for _, condition := range conditions {
		list = append(list, condition)
	}
	for _, kind := range gone {
		list = append(list, map[string]any{"$patch": "delete", "type": kind})
		metadata["resourceVersion"] = stored.ResourceVersion
	}
	text, err := json.Marshal(map[string]any{"metadata": metadata, "status": map[string]any{"conditions": list}})
	if err != nil {
		return nil, fmt.Errorf("make patch: %w: %w", controlplane.ErrInvalid, err)
	}
	return text, nil
}
