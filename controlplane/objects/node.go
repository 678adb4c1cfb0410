package objects

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"hostler.io/hostler/controlplane"
)

// Node reads a Node.
func (c *Client) Node(ctx context.Context, name string) (*corev1.Node, error) {
	if err := controlplane.CheckCall(ctx, "get node", name); err != nil {
		return nil, err
	}
	ctx, cancel := controlplane.Bound(ctx, callTimeout)
	defer cancel()
	stored, err := c.read(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("get node %q: %w", name, err)
	}
	c.update(stored)
	return stored.DeepCopy(), nil
}

// read reads a Node.
func (c *Client) read(ctx context.Context, name string) (*corev1.Node, error) {
	key := Key{Kind: Node, Node: name}
	stored, err := c.store.Get(ctx, key)
	if err != nil {
		return nil, err
	}
	return decode[corev1.Node](key, stored.Value, stored.Version)
}

// put stores a Node if the stored version is instead, and returns it as readers see it.
func (c *Client) put(ctx context.Context, node *corev1.Node, instead Version) (*corev1.Node, error) {
	value, err := encode(Node, node)
	if err != nil {
		return nil, err
	}
	key := Key{Kind: Node, Node: node.Name}
	stored, err := decode[corev1.Node](key, value, None)
	if err != nil { // no agent and no server could read it
		return nil, fmt.Errorf("%w: %w", controlplane.ErrInvalid, err)
	}
	version, err := c.store.Put(ctx, key, Put{Value: value, Instead: instead})
	if err != nil {
		return nil, err
	}
	stored.SetResourceVersion(string(version))
	return stored, nil
}

// refused returns the stored Node that a write was refused for; ErrNotFound if there is none. It
// returns any other error unchanged.
func refused(name string, err error) (*corev1.Node, error) {
	stored, conflict := storedIn(err)
	switch {
	case !conflict:
		return nil, err
	case stored.Version == None:
		return nil, fmt.Errorf("%w: it no longer exists", controlplane.ErrNotFound)
	}
	return decode[corev1.Node](Key{Kind: Node, Node: name}, stored.Value, stored.Version)
}

// versionOf returns the version of a Node; None for nil.
func versionOf(node *corev1.Node) Version {
	if node == nil {
		return None
	}
	return Version(node.ResourceVersion)
}

// Cordon sets spec.unschedulable and its taint.
func (c *Client) Cordon(ctx context.Context, name string, unschedulable, own bool) (*corev1.Node, error) {
	return c.edit(ctx, "cordon node", name, func(node *corev1.Node) error {
		controlplane.SetCordon(node, unschedulable, own)
		controlplane.TaintCordon(node, c.o.Now())
		return nil
	})
}

// Annotate sets an annotation, or removes it if value is empty.
func (c *Client) Annotate(ctx context.Context, name string, uid types.UID, key, value string) (*corev1.Node, error) {
	return c.edit(ctx, "annotate node", name, func(node *corev1.Node) error {
		if node.UID != uid {
			return fmt.Errorf("%w: the Node has another UID", controlplane.ErrConflict)
		}
		delete(node.Annotations, key)
		if value != "" {
			metav1.SetMetaDataAnnotation(&node.ObjectMeta, key, value)
		}
		return nil
	})
}

// edit changes a Node in its stored state, and returns the new stored state.
func (c *Client) edit(ctx context.Context, operation, name string, change func(*corev1.Node) error) (*corev1.Node, error) {
	if err := controlplane.CheckCall(ctx, operation, name); err != nil {
		return nil, err
	}
	ctx, cancel := controlplane.Bound(ctx, callTimeout)
	defer cancel()
	stored, err := c.read(ctx, name)
	var lost error
	for range attempts {
		if err != nil {
			return nil, fmt.Errorf("%s %q: %w", operation, name, err)
		}
		next := stored.DeepCopy()
		if err := change(next); err != nil {
			return nil, fmt.Errorf("%s %q: %w", operation, name, err)
		}
		lost = nil
		if !equality.Semantic.DeepEqual(stored, next) {
			next, lost = c.put(ctx, next, versionOf(stored))
		}
		if lost == nil {
			c.update(next)
			return next.DeepCopy(), nil
		}
		stored, err = refused(name, lost)
	}
	return nil, fmt.Errorf("%s %q: %w", operation, name, lost)
}

// Nodes lists all Nodes by name. Unreadable Nodes are left out, and the error names them.
func (c *Client) Nodes(ctx context.Context) ([]corev1.Node, error) {
	var nodes []corev1.Node
	var unreadable []error
	err := c.each(ctx, Node, func(o Object) {
		node, err := decode[corev1.Node](o.Key, o.Value, o.Version)
		if err != nil {
			unreadable = append(unreadable, err)
			return
		}
		nodes = append(nodes, *node)
	})
	if len(unreadable) > 0 {
		err = errors.Join(fmt.Errorf("list nodes: %w", errors.Join(unreadable...)), err)
	}
	slices.SortFunc(nodes, func(a, b corev1.Node) int { return cmp.Compare(a.Name, b.Name) })
	return nodes, err
}

// each calls take for all objects of a kind, in the order of their keys.
func (c *Client) each(ctx context.Context, kind Kind, take func(Object)) error {
	ctx, cancel := controlplane.Bound(ctx, listTimeout)
	defer cancel()
	for page := ""; ; {
		if ctx.Err() != nil {
			return fmt.Errorf("list %s: %w", kind, context.Cause(ctx))
		}
		objects, next, err := c.store.List(ctx, kind, "", page)
		if err != nil {
			return err
		}
		for _, o := range objects {
			take(o)
		}
		if next == "" {
			return nil
		}
		if next == page {
			return fmt.Errorf("list %s: %w: %s at %s returned page %q as its own next page", kind, controlplane.ErrUnavailable, c.Type(), c.Endpoint(), page)
		}
		page = next
	}
}

// WatchNode follows the Node.
func (c *Client) WatchNode(ctx context.Context, name string, seen chan<- *corev1.Node) error {
	if err := controlplane.CheckCall(ctx, "watch node", name); err != nil {
		return err
	}
	key := Key{Kind: Node, Node: name}
	return follow(ctx, c.store, key, seen, func(state Object) (*corev1.Node, error) {
		if state.Version == None {
			return nil, nil
		}
		return decode[corev1.Node](key, state.Value, state.Version)
	})
}

// follow sends each state of an object, decoded by read, and returns why it ended. It can skip
// states, but not the last one.
func follow[T any](ctx context.Context, store Store, key Key, seen chan<- T, read func(Object) (T, error)) error {
	watching, stop := context.WithCancel(ctx)
	states, ended := make(chan Object), make(chan error, 1)
	go func() { ended <- store.Watch(watching, key, states) }()
	var last T
	var news chan<- T // nil if there is nothing to send
	var err error
	for err == nil {
		select {
		case state := <-states:
			last, err = read(state)
			news = seen
		case news <- last:
			news = nil
		case err = <-ended:
			ended <- err
			err = cmp.Or(err, fmt.Errorf("watch %s: %w", key, controlplane.ErrUnavailable))
		}
	}
	stop()
	<-ended
	if ctx.Err() != nil {
		return fmt.Errorf("watch %s: %w", key, context.Cause(ctx))
	}
	return err
}
