package controlplanetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane"
)

// forgiving gives a name to every machine that requests it.
type forgiving struct{ *Fake }

func (c *forgiving) Register(ctx context.Context, node *corev1.Node, o controlplane.RegisterOptions) (*corev1.Node, error) {
	o.Takeover = true
	return c.Fake.Register(ctx, node, o)
}

// unheld gives a Lease to every machine that requests it.
type unheld struct{ *Fake }

func (c *unheld) RenewLease(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	stored, err := c.Fake.RenewLease(ctx, lease)
	if errors.Is(err, controlplane.ErrConflict) {
		return lease, nil
	}
	return stored, err
}

// overwriting stores what it has read, even if another client has written since.
type overwriting struct{ *Fake }

func (c *overwriting) UpdateStatus(ctx context.Context, node *corev1.Node) (*corev1.Node, error) {
	stored, err := c.Fake.UpdateStatus(ctx, node)
	if err == nil {
		err = c.Edit(ctx, node.Name, func(n *corev1.Node) { n.Labels = node.Labels })
	}
	return stored, err
}

// backwards lists the last Event first.
type backwards struct{ *Fake }

func (c *backwards) Events(ctx context.Context) ([]corev1.Event, error) {
	events, err := c.Fake.Events(ctx)
	slices.Reverse(events)
	return events, err
}

// narrow accepts names of up to 200 characters.
type narrow struct{ *Fake }

func (c *narrow) Register(ctx context.Context, node *corev1.Node, o controlplane.RegisterOptions) (*corev1.Node, error) {
	if len(node.Name) > 200 {
		return nil, fmt.Errorf("%w: too long", controlplane.ErrInvalid)
	}
	return c.Fake.Register(ctx, node, o)
}

func (c *narrow) PublishEvent(ctx context.Context, event *corev1.Event) error {
	if len(event.Name) > 200 {
		return fmt.Errorf("%w: too long", controlplane.ErrInvalid)
	}
	return c.Fake.PublishEvent(ctx, event)
}

// leaking leaves a goroutine behind after each renewal.
type leaking struct{ *Fake }

func (c *leaking) RenewLease(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	go func() { time.Sleep(time.Minute) }()
	return c.Fake.RenewLease(ctx, lease)
}

// stubborn ignores the end of the context.
type stubborn struct{ *Fake }

func (c *stubborn) Lease(ctx context.Context, name string) (*coordinationv1.Lease, error) {
	patient, cancel := context.WithTimeout(context.WithoutCancel(ctx), 29*time.Second)
	defer cancel()
	return c.Fake.Lease(patient, name)
}

// unbounded waits without a deadline.
type unbounded struct{ *Fake }

func (c *unbounded) Node(ctx context.Context, name string) (*corev1.Node, error) {
	if _, bounded := ctx.Deadline(); bounded {
		return c.Fake.Node(ctx, name)
	}
	ctx, cancel := context.WithTimeout(ctx, time.Hour)
	defer cancel()
	return c.Fake.Node(ctx, name)
}

// twice stores each Event under another name.
type twice struct {
	*Fake
	events int
}

func (c *twice) PublishEvent(ctx context.Context, event *corev1.Event) error {
	event = event.DeepCopy()
	c.events++
	event.Name += fmt.Sprint(c.events)
	return c.Fake.PublishEvent(ctx, event)
}
