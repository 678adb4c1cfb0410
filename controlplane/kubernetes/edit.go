package kubernetes

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"hostler.io/hostler/controlplane"
)

// Edit changes metadata and spec of a Node, and then the status, as a person with these rights
// does. The agent does not use it, and does not have these rights. It implements
// conformance.Editor.
func (c *Client) Edit(ctx context.Context, name string, change func(*corev1.Node)) error {
	if err := controlplane.CheckCall(ctx, "edit node", name); err != nil {
		return err
	}
	ctx, cancel := controlplane.Bound(ctx, callTimeout)
	defer cancel()
	for _, subresources := range [][]string{nil, {"status"}} {
		err := c.put(ctx, name, change, subresources...)
		for errors.Is(err, controlplane.ErrConflict) && ctx.Err() == nil {
			err = c.put(ctx, name, change, subresources...)
		}
		if err != nil {
			return fmt.Errorf("edit node %q: %w", name, err)
		}
	}
	return nil
}

// put stores one part of the Node, unless change leaves that part as it was.
func (c *Client) put(ctx context.Context, name string, change func(*corev1.Node), subresources ...string) error {
	stored, err := c.node(ctx, "read", target{name: name}, func(r rest.Interface) *rest.Request { return r.Get().Resource("nodes").Name(name) })
	if err != nil {
		return err
	}
	changed, next := stored.DeepCopy(), stored.DeepCopy()
	change(changed)
	if len(subresources) > 0 {
		next.Status = changed.Status
	} else {
		next, changed.Status = changed, stored.Status
	}
	if equality.Semantic.DeepEqual(stored, next) {
		return nil
	}
	_, err = c.node(ctx, "replace", target{name: name}, func(r rest.Interface) *rest.Request {
		return r.Put().Resource("nodes").Name(name).SubResource(subresources...).Body(next)
	})
	return err
}

// RemoveEvents deletes the Events about the Node of that name. It needs a right that a node lacks.
// The server itself deletes Events after an hour. It implements conformance.EventRemover.
func (c *Client) RemoveEvents(ctx context.Context, nodeName string) error {
	if err := controlplane.CheckCall(ctx, "remove events of node", nodeName); err != nil {
		return err
	}
	ctx, cancel := controlplane.Bound(ctx, callTimeout)
	defer cancel()
	return c.ask(ctx, fmt.Sprintf("remove events of node %q", nodeName), c.core, func(r rest.Interface) *rest.Request {
		return r.Delete().Namespace(metav1.NamespaceDefault).Resource("events").
			Param("fieldSelector", "involvedObject.kind=Node,involvedObject.name="+nodeName)
	}, nil)
}
