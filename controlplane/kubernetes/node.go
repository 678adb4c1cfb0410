package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"hostler.io/hostler/controlplane"
)

// Node reads a Node.
func (c *Client) Node(ctx context.Context, name string) (*corev1.Node, error) {
	if err := controlplane.CheckCall(ctx, "get node", name); err != nil {
		return nil, err
	}
	ctx, cancel := controlplane.Bound(ctx, callTimeout)
	defer cancel()
	stored, err := c.node(ctx, fmt.Sprintf("get node %q", name), target{name: name}, func(r rest.Interface) *rest.Request {
		return r.Get().Resource("nodes").Name(name)
	})
	if err != nil {
		return nil, err
	}
	c.update(stored)
	return stored, nil
}

// Register creates the Node, or adopts the stored one.
func (c *Client) Register(ctx context.Context, node *corev1.Node, opts controlplane.RegisterOptions) (*corev1.Node, error) {
	if err := controlplane.CheckCall(ctx, "register node", node.Name); err != nil {
		return nil, err
	}
	ctx, cancel := controlplane.Bound(ctx, callTimeout)
	defer cancel()
	var err error
	for range attempts {
		var stored *corev1.Node
		stored, err = c.register(ctx, node, opts)
		if err == nil {
			c.learn(stored)
			return stored, nil
		}
		if !errors.Is(err, controlplane.ErrConflict) {
			break
		}
	}
	if _, ok := errors.AsType[*controlplane.IdentityError](err); ok {
		return nil, fmt.Errorf("register: %w", err)
	}
	return nil, fmt.Errorf("register node %q: %w", node.Name, err)
}

// register makes one attempt. It returns ErrConflict if the Node is created, deleted or changed
// meanwhile.
func (c *Client) register(ctx context.Context, node *corev1.Node, opts controlplane.RegisterOptions) (*corev1.Node, error) {
	var refused error
	if !opts.AdoptOnly {
		created, err := c.create(ctx, node, opts)
		// If the name exists, the server may also answer Forbidden, depending on which check is first.
		if !errors.Is(err, controlplane.ErrConflict) && !errors.Is(err, controlplane.ErrForbidden) {
			return created, err
		}
		refused = err
	}
	stored, err := c.Node(ctx, node.Name)
	if errors.Is(err, controlplane.ErrNotFound) && refused != nil {
		return nil, refused
	}
	if err != nil {
		return nil, err
	}
	var lease *coordinationv1.Lease
	if controlplane.Disputed(stored, node) {
		if lease, err = c.Lease(ctx, node.Name); err != nil && !errors.Is(err, controlplane.ErrNotFound) {
			return nil, err
		}
	}
	others, err := controlplane.Claim(stored, node, lease, opts)
	if err != nil {
		return nil, err
	}
	if others {
		return c.replace(ctx, stored, node, opts)
	}
	adopted, err := controlplane.Adopt(stored, node)
	if err != nil {
		return nil, err
	}
	patch, err := nodePatch(stored, adopted)
	if err != nil || patch == nil {
		return stored, err
	}
	return c.patch(ctx, "adopt node", stored, patch)
}

// create creates the Node with its status. If another machine's Node was deleted for it, it creates
// the Node that replaces that one.
func (c *Client) create(ctx context.Context, node *corev1.Node, opts controlplane.RegisterOptions) (*corev1.Node, error) {
	if before := c.replacedFor(node.Name); before != nil {
		return c.recreate(ctx, before, node, opts)
	}
	wanted, err := controlplane.NewNode(node)
	if err != nil {
		return nil, err
	}
	return c.post(ctx, wanted)
}

func (c *Client) post(ctx context.Context, wanted *corev1.Node) (*corev1.Node, error) {
	return c.node(ctx, "create", target{name: wanted.Name}, func(r rest.Interface) *rest.Request {
		return r.Post().Resource("nodes").Body(wanted)
	})
}

// Cordon sets spec.unschedulable. A node may do that with its own Node.
func (c *Client) Cordon(ctx context.Context, name string, unschedulable, own bool) (*corev1.Node, error) {
	var want corev1.Node
	controlplane.SetCordon(&want, unschedulable, own)
	annotations := map[string]*string{controlplane.AnnotationCordoned: nil}
	if value, is := want.Annotations[controlplane.AnnotationCordoned]; is {
		annotations[controlplane.AnnotationCordoned] = &value
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations}, "spec": map[string]any{"unschedulable": unschedulable}})
	if err != nil {
		return nil, fmt.Errorf("cordon node %q: %w", name, err)
	}
	return c.edit(ctx, "cordon node", &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, patch)
}

// Annotate sets an annotation, or removes it if value is empty. A node may do that with its own Node.
func (c *Client) Annotate(ctx context.Context, name string, uid types.UID, key, value string) (*corev1.Node, error) {
	annotations := map[string]*string{key: nil}
	if value != "" {
		annotations[key] = &value
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": uid, "annotations": annotations}})
	if err != nil {
		return nil, fmt.Errorf("annotate node %q: %w", name, err)
	}
	stored, err := c.edit(ctx, "annotate node", &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: uid}}, patch)
	if errors.Is(err, controlplane.ErrInvalid) { // the UID differs, or the annotation is too long
		if now, readErr := c.Node(ctx, name); readErr == nil && now.UID != uid {
			return nil, fmt.Errorf("annotate node %q: %w: it has another UID", name, controlplane.ErrConflict)
		}
	}
	return stored, err
}

// edit applies a patch to a Node, for a call of a caller.
func (c *Client) edit(ctx context.Context, operation string, of *corev1.Node, patch []byte) (*corev1.Node, error) {
	if err := controlplane.CheckCall(ctx, operation, of.Name); err != nil {
		return nil, err
	}
	ctx, cancel := controlplane.Bound(ctx, callTimeout)
	defer cancel()
	stored, err := c.patch(ctx, operation, of, patch)
	if err != nil {
		return nil, err
	}
	c.update(stored)
	return stored, nil
}

// patch applies a strategic merge patch to the Node, or to its subresources.
func (c *Client) patch(ctx context.Context, operation string, of *corev1.Node, patch []byte, subresources ...string) (*corev1.Node, error) {
	return c.node(ctx, fmt.Sprintf("%s %q", operation, of.Name), target{of.Name, of.UID}, func(r rest.Interface) *rest.Request {
		return r.Patch(types.StrategicMergePatchType).Resource("nodes").Name(of.Name).SubResource(subresources...).Body(patch)
	})
}

// node makes a request that returns the Node.
func (c *Client) node(ctx context.Context, operation string, a target, request func(rest.Interface) *rest.Request) (*corev1.Node, error) {
	node := &corev1.Node{}
	err := c.ask(ctx, operation, c.core, request, node)
	if err == nil {
		err = c.answered(operation, a, node)
	}
	if err != nil {
		return nil, err
	}
	node.Kind, node.APIVersion = "Node", "v1"
	return node, nil
}
