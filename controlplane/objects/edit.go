package objects

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"hostler.io/hostler/controlplane"
)

// Edit changes a Node as a person does; the agent does not use it. It implements
// conformance.Editor. It retries until ctx ends, because other clients may write without a pause.
func (c *Client) Edit(ctx context.Context, name string, change func(*corev1.Node)) error {
	if err := controlplane.CheckCall(ctx, "edit node", name); err != nil {
		return err
	}
	ctx, cancel := controlplane.Bound(ctx, callTimeout)
	defer cancel()
	var lost error
	for stored, err := c.read(ctx, name); ; stored, err = refused(name, lost) {
		if err != nil {
			return fmt.Errorf("edit node %q: %w", name, err)
		}
		next := stored.DeepCopy()
		change(next)
		if equality.Semantic.DeepEqual(stored, next) {
			return nil
		}
		if _, lost = c.put(ctx, next, versionOf(stored)); lost == nil {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("edit node %q: %w", name, lost)
		}
	}
}

// RemoveEvents deletes the Events about the Node of that name. Otherwise they expire after an hour.
// It implements conformance.EventRemover.
func (c *Client) RemoveEvents(ctx context.Context, nodeName string) error {
	if err := controlplane.CheckCall(ctx, "remove events of node", nodeName); err != nil {
		return err
	}
	ctx, cancel := controlplane.Bound(ctx, listTimeout)
	defer cancel()
	for {
		events, next, err := c.store.List(ctx, Event, nodeName, "")
		if err != nil {
			return fmt.Errorf("remove events of node %q: %w", nodeName, err)
		}
		for _, event := range events {
			if err := c.store.Delete(ctx, event.Key, None); err != nil {
				return fmt.Errorf("remove events of node %q: %w", nodeName, err)
			}
		}
		if next == "" { // read the first page again: deleted objects are on no page
			return nil
		}
	}
}
