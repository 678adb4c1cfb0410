package kubernetes

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"hostler.io/hostler/controlplane"
)

// Leave deletes the Node and then its Lease. In this order nothing is deleted if the first is
// forbidden, as it is with a node's own credentials. It deletes only an object that it has read and
// that belongs to the machine.
func (c *Client) Leave(ctx context.Context, name string, machine controlplane.Identity) error {
	if err := controlplane.CheckCall(ctx, "leave: delete node", name); err != nil {
		return err
	}
	ctx, cancel := controlplane.Bound(ctx, callTimeout)
	defer cancel()
	var err error
	for range attempts {
		if err = c.removeOwn(ctx, name, machine); !errors.Is(err, controlplane.ErrConflict) {
			break
		}
	}
	if errors.Is(err, controlplane.ErrForbidden) {
		return fmt.Errorf("%w: run `kubectl delete node %s` as a user with the permission", err, name)
	}
	if err != nil && !errors.Is(err, controlplane.ErrNotFound) {
		return err
	}
	c.forget()
	err = c.removeLease(ctx, name, machine)
	if err != nil && !errors.Is(err, controlplane.ErrNotFound) {
		return fmt.Errorf("%w: %w", controlplane.ErrLeaseStays, err)
	}
	return nil
}

// removeOwn deletes the Node of that name if it belongs to the machine.
func (c *Client) removeOwn(ctx context.Context, name string, machine controlplane.Identity) error {
	stored, err := c.Node(ctx, name)
	if err == nil {
		err = controlplane.CheckLeave(stored, machine)
	}
	if err != nil {
		return fmt.Errorf("leave: %w", err)
	}
	return c.remove(ctx, "leave: delete node", stored)
}

// removeLease deletes the Lease of that name, unless it belongs to another machine.
func (c *Client) removeLease(ctx context.Context, name string, machine controlplane.Identity) error {
	lease, err := c.Lease(ctx, name)
	if err != nil || controlplane.HolderOf(lease).Differs(machine) {
		return err
	}
	return c.ask(ctx, fmt.Sprintf("leave: delete lease %q", name), c.leases, func(r rest.Interface) *rest.Request {
		return r.Delete().Namespace(controlplane.LeaseNamespace).Resource("leases").Name(name).
			Body(&metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &lease.UID}})
	}, nil)
}

// remove deletes the Node if it still has that UID and version.
func (c *Client) remove(ctx context.Context, operation string, only *corev1.Node) error {
	return c.ask(ctx, fmt.Sprintf("%s %q", operation, only.Name), c.core, func(r rest.Interface) *rest.Request {
		return r.Delete().Resource("nodes").Name(only.Name).
			Body(&metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &only.UID, ResourceVersion: &only.ResourceVersion}})
	}, nil)
}

// replace replaces another machine's Node with a new one, if hostler may delete it. Otherwise it
// takes the Node over and removes what a node may remove.
func (c *Client) replace(ctx context.Context, stored, node *corev1.Node, opts controlplane.RegisterOptions) (*corev1.Node, error) {
	if !opts.AdoptOnly && !controlplane.Reports(stored, node) {
		c.setReplaced(stored)
		err := c.remove(ctx, "replace: delete node", stored)
		if err == nil || errors.Is(err, controlplane.ErrNotFound) {
			return c.recreate(ctx, stored, node, opts)
		}
		if !errors.Is(err, controlplane.ErrForbidden) {
			return nil, err // the Node may have been deleted
		}
		c.setReplaced(nil)
	}
	taken, err := controlplane.TakeOver(stored, node)
	if err != nil {
		return nil, err
	}
	// Patch the status first: the annotations still name the previous machine, so that a failure
	// repeats all of this.
	patch, err := statusPatch(stored, taken.Status)
	if err != nil {
		return nil, err
	}
	cleared, err := c.patch(ctx, "take over node", stored, patch, "status")
	if err != nil {
		return nil, err
	}
	taken.Status, taken.ManagedFields = cleared.Status, cleared.ManagedFields
	if patch, err = nodePatch(cleared, taken); err != nil {
		return nil, err
	}
	adopted, err := c.patch(ctx, "take over node", stored, patch)
	if err == nil {
		opts.Replaced(stored)
	}
	return adopted, err
}

// recreate creates this machine's Node after another machine's was deleted.
func (c *Client) recreate(ctx context.Context, stored, node *corev1.Node, opts controlplane.RegisterOptions) (*corev1.Node, error) {
	next, err := controlplane.Replace(stored, node)
	if err != nil {
		return nil, err
	}
	created, err := c.post(ctx, next)
	if err == nil {
		opts.Replaced(stored)
	}
	if err == nil || errors.Is(err, controlplane.ErrConflict) { // another client has created it, or it was never deleted
		c.setReplaced(nil)
	}
	return created, err
}

// setReplaced records the Node that the next created Node replaces: the server may delete the old
// one without an answer. Nil if there is none.
func (c *Client) setReplaced(stored *corev1.Node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.replaced = stored
}

func (c *Client) replacedFor(name string) *corev1.Node {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.replaced == nil || c.replaced.Name != name {
		return nil
	}
	return c.replaced
}
