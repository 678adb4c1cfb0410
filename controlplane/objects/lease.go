package objects

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/store"
)

// Lease reads the Lease.
func (c *Client) Lease(ctx context.Context, name string) (*coordinationv1.Lease, error) {
	if err := controlplane.CheckCall(ctx, "get lease", name); err != nil {
		return nil, err
	}
	ctx, cancel := controlplane.Bound(ctx, leaseTimeout)
	defer cancel()
	key := Key{Kind: Lease, Node: name}
	stored, err := c.store.Get(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("get lease %q: %w", name, err)
	}
	lease, err := decode[coordinationv1.Lease](key, stored.Value, stored.Version)
	if err != nil {
		return nil, fmt.Errorf("get lease %q: %w", name, err)
	}
	c.recordHolder(lease)
	return lease, nil
}

// RenewLease stores the Lease with its duration as the TTL, with one write.
func (c *Client) RenewLease(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	if err := controlplane.CheckCall(ctx, "renew lease", lease.Name); err != nil {
		return nil, err
	}
	if d := lease.Spec.LeaseDurationSeconds; d == nil || *d <= 0 {
		return nil, fmt.Errorf("renew lease %q: %w: it has no duration", lease.Name, controlplane.ErrInvalid)
	}
	ctx, cancel := controlplane.Bound(ctx, leaseTimeout)
	defer cancel()
	next, before := lease.DeepCopy(), Version(lease.ResourceVersion)
	if before == None || next.UID == "" {
		c.initialize(next)
	}
	stored, err := c.putLease(ctx, next, before)
	if there, conflict := storedIn(err); conflict && c.unreadable(lease, there) {
		c.initialize(next)
		stored, err = c.putLease(ctx, next, there.Version)
	}
	if err != nil {
		return nil, fmt.Errorf("renew lease %q: %w", lease.Name, err)
	}
	return stored, nil
}

// unreadable reports whether the Lease may replace the stored object, which is unreadable and has the
// name of this client's Node. Such a Lease has no duration to wait for.
func (c *Client) unreadable(lease *coordinationv1.Lease, there Object) bool {
	if there.Version == None {
		return false
	}
	_, err := decode[coordinationv1.Lease](Key{Kind: Lease, Node: lease.Name}, there.Value, there.Version)
	node := c.last(lease.Name)
	return errors.Is(err, store.ErrUnreadable) && node != nil &&
		slices.ContainsFunc(lease.OwnerReferences, func(owner metav1.OwnerReference) bool { return owner.UID == node.UID })
}

func (c *Client) putLease(ctx context.Context, lease *coordinationv1.Lease, instead Version) (*coordinationv1.Lease, error) {
	value, err := encode(Lease, lease)
	if err != nil {
		return nil, err
	}
	key := Key{Kind: Lease, Node: lease.Name}
	version, err := c.store.Put(ctx, key, Put{Value: value, Instead: instead, TTL: time.Duration(*lease.Spec.LeaseDurationSeconds) * time.Second})
	if err != nil {
		return nil, err
	}
	return decode[coordinationv1.Lease](key, value, version)
}

// Leave deletes the Node with its Lease. It deletes only a version that it has read and that
// belongs to the machine.
func (c *Client) Leave(ctx context.Context, name string, machine controlplane.Identity) error {
	if err := controlplane.CheckCall(ctx, "leave: delete node", name); err != nil {
		return err
	}
	ctx, cancel := controlplane.Bound(ctx, callTimeout)
	defer cancel()
	stored, err := c.read(ctx, name)
	var lost error
	for range attempts {
		if errors.Is(err, controlplane.ErrNotFound) {
			c.forget()
			return c.removeLease(ctx, name, machine)
		}
		if err == nil {
			err = controlplane.CheckLeave(stored, machine)
		}
		if err != nil {
			return fmt.Errorf("leave: %w", err)
		}
		if lost = c.store.Delete(ctx, Key{Kind: Node, Node: name}, versionOf(stored)); lost == nil || errors.Is(lost, controlplane.ErrLeaseStays) {
			c.forget()
			break
		}
		stored, err = refused(name, lost)
	}
	if lost != nil {
		return fmt.Errorf("leave: delete node %q: %w", name, lost)
	}
	return nil
}

// removeLease deletes the Lease of a Node that does not exist any more, unless it belongs to
// another machine.
func (c *Client) removeLease(ctx context.Context, name string, machine controlplane.Identity) error {
	key := Key{Kind: Lease, Node: name}
	stored, err := c.store.Get(ctx, key)
	if errors.Is(err, controlplane.ErrNotFound) {
		return nil
	}
	if err == nil {
		lease, unreadable := decode[coordinationv1.Lease](key, stored.Value, stored.Version)
		if unreadable == nil && controlplane.HolderOf(lease).Differs(machine) {
			return nil
		}
		err = c.store.Delete(ctx, key, stored.Version)
	}
	if err != nil {
		return fmt.Errorf("leave: lease %q: %w: %w", name, controlplane.ErrLeaseStays, err)
	}
	return nil
}
