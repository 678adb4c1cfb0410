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

// RenewLease updates the Lease if it was stored before, else creates it.
func (c *Client) RenewLease(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	if err := controlplane.CheckCall(ctx, "renew lease", lease.Name); err != nil {
		return nil, err
	}
	ctx, cancel := controlplane.Bound(ctx, leaseTimeout)
	defer cancel()
	operation := fmt.Sprintf("renew lease %q", lease.Name)
	next := lease.DeepCopy()
	// The resourceVersion alone identifies the Lease. With a UID, the server could not create a new
	// one if it was deleted.
	next.UID = ""
	if next.ResourceVersion != "" {
		// A PUT creates the Lease if it does not exist.
		stored, err := c.lease(ctx, operation, next.Name, func(r rest.Interface) *rest.Request {
			return r.Put().Namespace(next.Namespace).Resource("leases").Name(next.Name).Body(next)
		})
		if !errors.Is(err, controlplane.ErrNotFound) {
			return stored, err
		}
		next.ResourceVersion = ""
	}
	return c.lease(ctx, operation, next.Name, func(r rest.Interface) *rest.Request {
		return r.Post().Namespace(next.Namespace).Resource("leases").Body(next)
	})
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
