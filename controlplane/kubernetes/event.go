package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"hostler.io/hostler/controlplane"
)

// PublishEvent creates the Event, or updates the stored Event of that name. The server deletes
// Events after an hour by default; a later repetition is created as a first Event.
func (c *Client) PublishEvent(ctx context.Context, event *corev1.Event) error {
	if ctx.Err() != nil {
		return fmt.Errorf("publish event %q: %w", event.Name, context.Cause(ctx))
	}
	ctx, cancel := controlplane.Bound(ctx, callTimeout)
	defer cancel()
	if event.Count > 1 {
		if err := c.repeatEvent(ctx, event); !errors.Is(err, controlplane.ErrNotFound) {
			return err
		}
	}
	err := c.createEvent(ctx, event)
	switch {
	case errors.Is(err, controlplane.ErrConflict): // the answer to the first attempt was lost
		return c.repeatEvent(ctx, event)
	case errors.Is(err, controlplane.ErrNotFound):
		return fmt.Errorf("publish event %q: %w: the control plane has no namespace %q", event.Name, controlplane.ErrInvalid, event.Namespace)
	}
	return err
}

func (c *Client) createEvent(ctx context.Context, event *corev1.Event) error {
	event = event.DeepCopy()
	event.ResourceVersion, event.UID = "", ""
	return c.event(ctx, fmt.Sprintf("publish event %q", event.Name), event.Name, func(r rest.Interface) *rest.Request {
		return r.Post().Namespace(event.Namespace).Resource("events").Body(event)
	})
}

// repeatEvent patches the fields that a repetition changes. A node may patch Events, but not read
// them.
func (c *Client) repeatEvent(ctx context.Context, event *corev1.Event) error {
	operation := fmt.Sprintf("repeat event %q", event.Name)
	patch, err := json.Marshal(struct {
		Count         int32       `json:"count"`
		LastTimestamp metav1.Time `json:"lastTimestamp"`
		Message       string      `json:"message"`
	}{event.Count, event.LastTimestamp, event.Message})
	if err != nil {
		return fmt.Errorf("%s: %w: %w", operation, controlplane.ErrInvalid, err)
	}
	return c.event(ctx, operation, event.Name, func(r rest.Interface) *rest.Request {
		return r.Patch(types.StrategicMergePatchType).Namespace(event.Namespace).Resource("events").Name(event.Name).Body(patch)
	})
}

// event makes a request that returns the Event of that name.
func (c *Client) event(ctx context.Context, operation, name string, request func(rest.Interface) *rest.Request) error {
	stored := &corev1.Event{}
	if err := c.ask(ctx, operation, c.core, request, stored); err != nil {
		return err
	}
	return c.answered(operation, target{name: name}, stored)
}
