package kubernetes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"hostler.io/hostler/controlplane"
)

// shortWatch is the minimum duration of a watch that is restarted after the server has ended it. A
// shorter one is restarted only once, to prevent a tight loop.
const shortWatch = time.Second

// WatchNode follows the Node. It reads it once, and again only if the server cannot continue the
// watch.
func (c *Client) WatchNode(ctx context.Context, name string, seen chan<- *corev1.Node) error {
	if err := controlplane.CheckCall(ctx, "watch node", name); err != nil {
		return err
	}
	for version, short := "", false; ; {
		began, again := time.Now(), short
		var err error
		if version, err = c.follow(ctx, name, version, seen); err != nil {
			return err
		}
		if short = time.Since(began) < shortWatch; short && again {
			return fmt.Errorf("watch node %q: %w: the server ends the watch at once", name, controlplane.ErrUnavailable)
		}
	}
}

// send delivers a state of the Node.
func send(ctx context.Context, name string, seen chan<- *corev1.Node, node *corev1.Node) error {
	select {
	case seen <- node:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("watch node %q: %w", name, context.Cause(ctx))
	}
}

// anyVersion starts a watch at the server's present state. The version of a Node that was read
// cannot be used. After its restart, a server refuses it as too old until somebody changes the
// Node.
const anyVersion = "0"

// follow delivers changes since a version until the server ends the watch because of its age. If
// version is empty, it delivers the Node first. It returns the last version; empty if the Node has
// to be read again.
func (c *Client) follow(ctx context.Context, name, version string, seen chan<- *corev1.Node) (string, error) {
	operation := fmt.Sprintf("watch node %q", name)
	changes, err := c.core.watch(ctx, func(r rest.Interface) *rest.Request {
		return r.Get().Resource("nodes").Param("watch", "true").Param("allowWatchBookmarks", "true").
			// The Node authorizer allows the watch because of this selector.
			Param("fieldSelector", fields.OneTermEqualSelector("metadata.name", name).String()).
			Param("resourceVersion", cmp.Or(version, anyVersion))
	})
	if outdated(err) {
		return "", nil
	}
	if err != nil {
		return "", c.fault(ctx, operation, err)
	}
	defer changes.Stop()
	var read *corev1.Node
	if version == "" { // read after the watch has begun, so that no change is missed
		if read, err = c.Node(ctx, name); err != nil && !errors.Is(err, controlplane.ErrNotFound) {
			return "", err
		}
		if err := send(ctx, name, seen, read); err != nil {
			return "", err
		}
	}
	for change := range changes.ResultChan() {
		if change.Type == watch.Error {
			switch err := apierrors.FromObject(change.Object); {
			case ctx.Err() != nil: // client-go returns such an error when ctx ends
				return "", fmt.Errorf("%s: %w", operation, context.Cause(ctx))
			case outdated(err):
				return "", nil
			default:
				return "", c.fault(ctx, operation, err)
			}
		}
		if large, is := change.Object.(*oversized); is {
			return "", c.fault(ctx, operation, large.cause)
		}
		node, ok := change.Object.(*corev1.Node)
		if !ok {
			return "", fmt.Errorf("%s: %w: the server sent a %T", operation, controlplane.ErrUnavailable, change.Object)
		}
		if change.Type != watch.Bookmark && node.Name != name { // a bookmark has no name
			return "", c.answered(operation, target{name: name}, node)
		}
		version = node.ResourceVersion
		switch {
		case change.Type == watch.Bookmark: // has only a version
			continue
		case read != nil && !after(node, read): // the watch may begin before the read
			continue
		case change.Type == watch.Deleted:
			node = nil
		default:
			node.Kind, node.APIVersion = "Node", "v1"
			c.update(node)
		}
		if err := send(ctx, name, seen, node); err != nil {
			return "", err
		}
	}
	if ctx.Err() != nil {
		return "", fmt.Errorf("%s: %w", operation, context.Cause(ctx))
	}
	return version, nil
}

// watch starts a watch on the current connection. It ends with the connection. Until the server has
// confirmed it, it has the deadline of other requests.
func (g *apiGroup) watch(ctx context.Context, request func(rest.Interface) *rest.Request) (watch.Interface, error) {
	finding, found := controlplane.Bound(ctx, callTimeout)
	defer found()
	c, err := g.acquire(finding)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	late := time.AfterFunc(callTimeout, func() { cancel(controlplane.ErrNoAnswer) })
	changes, err := request(c).MaxRetries(0).Watch(ctx)
	if err == nil && !late.Stop() {
		changes.Stop()
		err = controlplane.ErrNoAnswer
	}
	if err != nil {
		late.Stop()
		cancel(nil)
		if g.mustRedial(err) {
			g.Drop(c)
		}
		g.Release(c)
		return nil, err
	}
	return &bounded{changes, sync.OnceFunc(func() {
		changes.Stop()
		cancel(nil)
		g.Release(c)
	})}, nil
}

// bounded is a watch that releases its resources when it ends.
type bounded struct {
	watch.Interface
	stop func()
}

// Stop implements watch.Interface.
func (b *bounded) Stop() { b.stop() }
