package kubernetes

import (
	"context"
	"errors"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/client-go/rest"

	"hostler.io/hostler/controlplane"
)

// Lease reads the Lease.
func (c *Client) Lease(ctx context.Context, name string) (*coordinationv1.Lease, error) {
	if err := controlplane.CheckCall(ctx, "get lease", name); err != nil {
		return nil, err
	}
	ctx, cancel := controlplane.Bound(ctx, leaseTimeout)
	defer cancel()
	return c.lease(ctx, fmt.Sprintf("get lease %q", name), name, func(r rest.Interface) *rest.Request {
		return r.Get().Namespace(controlplane.LeaseNamespace).Resource("leases").Name(name)
	})
}

// RenewLease updates the Lease if it has a resourceVersion, else creates it.
func (c *Client) RenewLease(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	if err := controlplane.CheckCall(ctx, "renew lease", lease.Name); err != nil {
		return nil, err
	}
	ctx, cancel := controlplane.Bound(ctx, leaseTimeout)
	defer cancel()
	operation := fmt.Sprintf("renew lease %q", lease.Name)
	if lease.ResourceVersion == "" {
		next := lease.DeepCopy()
		next.UID = ""
		return c.lease(ctx, operation, next.Name, func(r rest.Interface) *rest.Request {
			return r.Post().Namespace(next.Namespace).Resource("leases").Body(next)
		})
	}
	// The UID keeps the server from creating a Lease that does not exist.
	stored, err := c.lease(ctx, operation, lease.Name, func(r rest.Interface) *rest.Request {
		return r.Put().Namespace(lease.Namespace).Resource("leases").Name(lease.Name).Body(lease)
	})
	if errors.Is(err, controlplane.ErrNotFound) {
		err = fmt.Errorf("%w: %w", controlplane.ErrConflict, err)
	}
	return stored, err
}

// lease makes a request that returns the Lease of that name.
func (c *Client) lease(ctx context.Context, operation, name string, request func(rest.Interface) *rest.Request) (*coordinationv1.Lease, error) {
	lease := &coordinationv1.Lease{}
	err := c.ask(ctx, operation, c.leases, request, lease)
	if err == nil {
		err = c.answered(operation, target{name: name}, lease)
	}
	if err != nil {
		return nil, err
	}
	lease.Kind, lease.APIVersion = "Lease", coordinationv1.SchemeGroupVersion.String()
	return lease, nil
}
