package objects

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"hostler.io/hostler/controlplane"
)

// UpdateStatus stores the status. It reads the Node only if this client has not seen it yet.
func (c *Client) UpdateStatus(ctx context.Context, node *corev1.Node) (*corev1.Node, error) {
	if err := controlplane.CheckCall(ctx, "update status of node", node.Name); err != nil {
		return nil, err
	}
	uid := node.UID
	if last := c.last(node.Name); last != nil && uid == "" {
		uid = last.UID
	}
	stored, err := c.change(ctx, node.Name, false,
		func(stored *corev1.Node) error { return owned(stored, node, uid) },
		func(stored *corev1.Node) corev1.NodeStatus {
			written := c.recordWrite(stored, node.Status)
			status := *node.Status.DeepCopy()
			if !c.o.SoleWriter {
				status = written.Merge(stored.Status, status)
			}
			if len(status.Addresses) == 0 { // another client writes them
				status.Addresses = stored.Status.Addresses
			}
			return status
		})
	if err != nil {
		return nil, fmt.Errorf("update status of node %q: %w", node.Name, err)
	}
	return stored, nil
}

// owned returns an error if the stored Node is not the one that the status of node belongs to.
func owned(stored, node *corev1.Node, uid types.UID) error {
	if uid != "" && stored.UID != uid {
		return fmt.Errorf("%w: a node of UID %s has this name now", controlplane.ErrNotFound, stored.UID)
	}
	return controlplane.CheckOwner(stored, node)
}

// UpdateConditions stores the conditions in the Node. If conditions are removed, the Node must not
// have changed since it was last seen.
func (c *Client) UpdateConditions(ctx context.Context, node *corev1.Node, gone []corev1.NodeConditionType) (*corev1.Node, error) {
	if err := controlplane.CheckCall(ctx, "update conditions of node", node.Name); err != nil {
		return nil, err
	}
	stored, err := c.change(ctx, node.Name, len(gone) > 0,
		func(stored *corev1.Node) error {
			if theirs, ours := controlplane.ReporterOf(stored), controlplane.IdentityOf(node); theirs.Differs(ours) {
				return &controlplane.IdentityError{Name: node.Name, Theirs: theirs, Ours: ours}
			}
			return nil
		},
		func(stored *corev1.Node) corev1.NodeStatus {
			status := stored.Status
			status.Conditions = with(status.Conditions, node.Status.Conditions, gone)
			return status
		})
	if err != nil {
		return nil, fmt.Errorf("update conditions of node %q: %w", node.Name, err)
	}
	return stored, nil
}

// with returns the stored conditions, with others instead of those of the same type, and without
// the types in gone.
func with(stored, others []corev1.NodeCondition, gone []corev1.NodeConditionType) []corev1.NodeCondition {
	stored = slices.Clone(stored)
	for _, c := range others {
		i := slices.IndexFunc(stored, func(s corev1.NodeCondition) bool { return s.Type == c.Type })
		if i < 0 {
			stored = append(stored, c)
			continue
		}
		stored[i] = c
	}
	return slices.DeleteFunc(stored, func(c corev1.NodeCondition) bool { return slices.Contains(gone, c.Type) })
}

// change stores the status that edit returns for the last seen Node. If that is outdated, it
// repeats edit with the stored Node, unless once is set. allowed returns an error if the Node may
// not be changed. It fails the call only for the stored Node, because the last seen state may be
// outdated.
func (c *Client) change(ctx context.Context, name string, once bool, allowed func(stored *corev1.Node) error, edit func(stored *corev1.Node) corev1.NodeStatus) (*corev1.Node, error) {
	ctx, cancel := controlplane.Bound(ctx, callTimeout)
	defer cancel()
	stored := c.last(name)
	if stored == nil || allowed(stored) != nil {
		var err error
		if stored, err = c.read(ctx, name); err != nil {
			return nil, c.forgetLost(err)
		}
	}
	var lost error
	for range attempts {
		if err := allowed(stored); err != nil {
			return nil, c.forgetLost(err)
		}
		next := *stored
		next.Status = edit(stored)
		var put *corev1.Node
		if put, lost = c.put(ctx, &next, versionOf(stored)); lost == nil {
			c.learn(put)
			return put.DeepCopy(), nil
		}
		var err error
		if stored, err = refused(name, lost); err != nil {
			return nil, c.forgetLost(err)
		}
		if once {
			c.forget()
			break
		}
	}
	return nil, lost
}

// forgetLost forgets a Node that does not exist or belongs to another machine now. It returns err.
func (c *Client) forgetLost(err error) error {
	_, taken := errors.AsType[*controlplane.IdentityError](err)
	if taken || errors.Is(err, controlplane.ErrNotFound) {
		c.forget()
	}
	return err
}
