package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"hostler.io/hostler/controlplane"
)

// known is the Node in the server's last answer. With it a status can be written without a read. It
// is immutable.
type known struct {
	node   *corev1.Node         // only the fields that a patch needs
	stored controlplane.Written // what this client has written into the Node
}

// UpdateStatus patches the differences in the status. It reads the Node only if no earlier answer
// or watch has returned it, or if another client has just changed it.
func (c *Client) UpdateStatus(ctx context.Context, node *corev1.Node) (*corev1.Node, error) {
	if err := controlplane.CheckCall(ctx, "update status of node", node.Name); err != nil {
		return nil, err
	}
	ctx, cancel := controlplane.Bound(ctx, callTimeout)
	defer cancel()
	operation := fmt.Sprintf("update status of node %q", node.Name)
	base := c.knownOf(node.Name)
	uid := node.UID
	if uid == "" && base != nil {
		uid = base.node.UID
	}
	var err error
	for range attempts {
		fresh := base == nil
		if fresh {
			if base, err = c.read(ctx, node.Name); err != nil {
				return nil, fmt.Errorf("%s: %w", operation, err)
			}
		}
		if err = owned(base.node, node, uid); err == nil {
			var stored *corev1.Node
			if stored, err = c.writeStatus(ctx, base, node); err == nil {
				return stored, nil
			}
			if !errors.Is(err, controlplane.ErrConflict) {
				break
			}
		} else if fresh {
			break
		}
		base = nil // the known state may be outdated
	}
	if errors.Is(err, controlplane.ErrNotFound) {
		c.forget()
	}
	return nil, fmt.Errorf("%s: %w", operation, err)
}

// owned returns an error if the stored Node is not the one that the status of node belongs to.
func owned(stored, node *corev1.Node, uid types.UID) error {
	if uid != "" && stored.UID != uid {
		return fmt.Errorf("%w: a node of UID %s has this name now", controlplane.ErrNotFound, stored.UID)
	}
	return controlplane.CheckOwner(stored, node)
}

// writeStatus patches the Node in base, if it has not changed since.
func (c *Client) writeStatus(ctx context.Context, base *known, node *corev1.Node) (*corev1.Node, error) {
	status := base.stored.Merge(base.node.Status, node.Status)
	if len(status.Addresses) == 0 { // another client writes them
		status.Addresses = base.node.Status.Addresses
	}
	patch, err := statusPatch(base.node, status)
	if err != nil {
		return nil, err
	}
	stored, err := c.patch(ctx, "patch node", base.node, patch, "status")
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	next := &known{node: patchBase(stored), stored: base.stored.With(node.Status)}
	if c.known != nil && later(c.known.node, stored) { // the watch was faster than this answer
		next.node = c.known.node
	}
	c.known = next
	return stored, nil
}

// read reads the Node again, but does not record it as the registered one.
func (c *Client) read(ctx context.Context, name string) (*known, error) {
	node, err := c.Node(ctx, name)
	if err != nil {
		return nil, err
	}
	base := &known{node: patchBase(node)}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known != nil && c.known.node.UID == node.UID {
		base.stored = c.known.stored
		c.known = base // also if versions went back, as after a restore of the server's store
	}
	return base, nil
}

// knownOf returns the known state of the Node; nil if there is none.
func (c *Client) knownOf(name string) *known {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known == nil || c.known.node.Name != name {
		return nil
	}
	return c.known
}

// learn records a Node as the registered one.
func (c *Client) learn(node *corev1.Node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	next := &known{node: patchBase(node)}
	if c.known != nil && c.known.node.UID == node.UID {
		next.stored = c.known.stored
	}
	c.known = next
}

// update records a later state of the registered Node. So the next status needs only one patch,
// which names the state that it is based on.
func (c *Client) update(node *corev1.Node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known != nil && later(node, c.known.node) {
		c.known = &known{node: patchBase(node), stored: c.known.stored}
	}
}

// later reports whether one state of a Node is later than another. If that is unknown, it returns
// false: the server refuses a patch of an outdated state.
func later(node, than *corev1.Node) bool {
	order, err := resourceversion.CompareResourceVersion(node.ResourceVersion, than.ResourceVersion)
	return err == nil && order > 0 && node.UID == than.UID
}

// after reports whether a change of a Node was stored after another state, which may be of a Node that was deleted since. If
// that is unknown, it returns true, also for the same state.
func after(change, state *corev1.Node) bool {
	order, err := resourceversion.CompareResourceVersion(change.ResourceVersion, state.ResourceVersion)
	return err != nil || order > 0
}

// forget makes the next status update read the Node first.
func (c *Client) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known = nil
}

// patchBase returns the fields of a Node that a patch of its status needs.
func patchBase(node *corev1.Node) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: node.Name, UID: node.UID, ResourceVersion: node.ResourceVersion,
			Annotations: maps.Clone(node.Annotations),
		},
		Status: *node.Status.DeepCopy(),
	}
}
