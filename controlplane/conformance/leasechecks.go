package conformance

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"hostler.io/hostler/controlplane"
)

func checkLease(ctx context.Context, b *Backend) error {
	_, err := b.Client.Lease(ctx, b.Name("leased"))
	if err := wantError("Lease() before there is one", err, controlplane.ErrNotFound); err != nil {
		return err
	}
	node, err := register(ctx, b, b.Name("leased"), here)
	if err != nil {
		return err
	}
	lease := newLease(b.Name("leased"), here, time.Now())
	controlplane.SetOwner(lease, node.Name, node.UID)
	deleted := lease.DeepCopy()
	deleted.ResourceVersion, deleted.UID = "12345", "deleted"
	_, err = b.Client.RenewLease(ctx, deleted)
	if err := wantError("RenewLease() of a lease that was deleted", err, controlplane.ErrConflict); err != nil {
		return err
	}
	first, err := b.Client.RenewLease(ctx, lease)
	if err != nil {
		return fmt.Errorf("RenewLease() of a new lease = %w, want it created", err)
	}
	if first.ResourceVersion == "" || first.UID == "" {
		return fmt.Errorf("RenewLease() = resourceVersion %q, uid %q, want both set", first.ResourceVersion, first.UID)
	}
	if len(first.OwnerReferences) != 1 || first.OwnerReferences[0].UID != node.UID {
		return fmt.Errorf("RenewLease() gave owners %v, want the node with uid %s", first.OwnerReferences, node.UID)
	}
	last := first
	for range 3 {
		next := controlplane.Renew(last, time.Now())
		stored, err := b.Client.RenewLease(ctx, next)
		if err != nil {
			return fmt.Errorf("RenewLease() = %w, want no error", err)
		}
		if !stored.Spec.RenewTime.Equal(next.Spec.RenewTime) || stored.UID != first.UID || stored.ResourceVersion == last.ResourceVersion {
			return fmt.Errorf("RenewLease() = %v, want renewTime %v, uid %s and another version than %s", stored, next.Spec.RenewTime, first.UID, last.ResourceVersion)
		}
		last = stored
	}
	read, err := b.Client.Lease(ctx, b.Name("leased"))
	if err != nil {
		return fmt.Errorf("Lease() = %w, want no error", err)
	}
	if read.ResourceVersion != last.ResourceVersion || !read.Spec.RenewTime.Equal(last.Spec.RenewTime) ||
		*read.Spec.HolderIdentity != b.Name("leased") || *read.Spec.LeaseDurationSeconds != 40 {
		return fmt.Errorf("Lease() = %v, want %v", read, last)
	}
	return nil
}

func checkLeaseConflict(ctx context.Context, b *Backend) error {
	first, err := renew(ctx, b, b.Name("contended"), here)
	if err != nil {
		return err
	}
	_, err = b.Client.RenewLease(ctx, newLease(b.Name("contended"), there, time.Now()))
	if err := wantError("RenewLease() of a new lease where there is one", err, controlplane.ErrConflict); err != nil {
		return err
	}
	second, err := b.Client.RenewLease(ctx, controlplane.Renew(first, time.Now()))
	if err != nil {
		return fmt.Errorf("RenewLease() = %w, want no error", err)
	}
	_, err = b.Client.RenewLease(ctx, controlplane.Renew(first, time.Now()))
	if err := wantError("RenewLease() from a version that is gone", err, controlplane.ErrConflict); err != nil {
		return err
	}
	read, err := b.Client.Lease(ctx, b.Name("contended"))
	if err != nil || read.ResourceVersion != second.ResourceVersion {
		return fmt.Errorf("Lease() after a conflict = %v, %w, want it as it was", read, orNone(err))
	}
	return nil
}

func checkLeaseRace(ctx context.Context, b *Backend) error {
	first, err := renew(ctx, b, b.Name("raced"), here)
	if err != nil {
		return err
	}
	errs := make([]error, 16)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() { _, errs[i] = b.Client.RenewLease(ctx, controlplane.Renew(first, time.Now())) })
	}
	wg.Wait()
	stored := 0
	for _, err := range errs {
		switch {
		case err == nil:
			stored++
		case !errors.Is(err, controlplane.ErrConflict):
			return fmt.Errorf("RenewLease() among others = %w, want no error or a conflict", err)
		}
	}
	if stored != 1 {
		return fmt.Errorf("renewals stored of %d from one version = %d, want 1", len(errs), stored)
	}
	return nil
}

func checkRenewTime(ctx context.Context, b *Backend) error {
	start := time.Now()
	lease, err := b.Client.RenewLease(ctx, newLease(b.Name("clock"), here, start))
	if err != nil {
		return fmt.Errorf("RenewLease() = %w, want no error", err)
	}
	for _, step := range []time.Duration{0, time.Nanosecond, -time.Hour, -time.Hour, time.Hour, -time.Hour} {
		next, err := b.Client.RenewLease(ctx, controlplane.Renew(lease, start.Add(step)))
		if err != nil {
			return fmt.Errorf("RenewLease() = %w, want no error", err)
		}
		if !lease.Spec.RenewTime.Before(next.Spec.RenewTime) {
			return fmt.Errorf("renewTime after a step of %v = %v, want it after %v", step, next.Spec.RenewTime, lease.Spec.RenewTime)
		}
		lease = next
	}
	return nil
}

// calls returns all methods that send requests to the control plane.
func calls(c controlplane.Client, name string) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"Register()": func(ctx context.Context) error {
			_, err := c.Register(ctx, newNode(name, here), controlplane.RegisterOptions{})
			return err
		},
		"Node()": func(ctx context.Context) error { _, err := c.Node(ctx, name); return err },
		"UpdateStatus()": func(ctx context.Context) error {
			_, err := c.UpdateStatus(ctx, newNode(name, here))
			return err
		},
		"Lease()": func(ctx context.Context) error { _, err := c.Lease(ctx, name); return err },
		"RenewLease()": func(ctx context.Context) error {
			_, err := c.RenewLease(ctx, newLease(name, here, time.Now()))
			return err
		},
		"PublishEvent()": func(ctx context.Context) error { return c.PublishEvent(ctx, newEvent(name, 1)) },
		"Leave()":        func(ctx context.Context) error { return c.Leave(ctx, name, controlplane.Identity{}) },
	}
}

func checkCancelled(ctx context.Context, b *Backend) error {
	if _, err := registerAlive(ctx, b, b.Name("cancelled"), here); err != nil {
		return err
	}
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	late, cancelLate := context.WithDeadline(ctx, time.Now().Add(-time.Second))
	defer cancelLate()
	for call, run := range calls(b.Client, b.Name("cancelled")) {
		if err := wantError(call+" cancelled", run(cancelled), context.Canceled); err != nil {
			return err
		}
		if err := wantError(call+" too late", run(late), context.DeadlineExceeded); err != nil {
			return err
		}
	}
	if _, err := b.Client.Node(ctx, b.Name("cancelled")); err != nil {
		return fmt.Errorf("Node() after cancelled calls = %w, want no error", err)
	}
	return nil
}

func checkCopies(ctx context.Context, b *Backend) error {
	given := newNode(b.Name("copied"), here)
	node, err := b.Client.Register(ctx, given, controlplane.RegisterOptions{})
	if err != nil {
		return fmt.Errorf("Register() = %w, want no error", err)
	}
	if given.UID != "" || len(given.Annotations) != 1 {
		return fmt.Errorf("Register() changed the node that it was given to %v", given)
	}
	given.Labels["example.com/rack"], node.Labels["example.com/rack"] = "mine", "mine"
	node.Status.Conditions[0].Reason = "Mine"
	lease := newLease(b.Name("copied"), here, time.Now())
	stored, err := b.Client.RenewLease(ctx, lease)
	if err != nil {
		return fmt.Errorf("RenewLease() = %w, want no error", err)
	}
	*lease.Spec.LeaseDurationSeconds, *stored.Spec.LeaseDurationSeconds = 1, 1

	readNode, err := b.Client.Node(ctx, b.Name("copied"))
	if err != nil {
		return fmt.Errorf("Node() = %w, want no error", err)
	}
	readLease, err := b.Client.Lease(ctx, b.Name("copied"))
	if err != nil {
		return fmt.Errorf("Lease() = %w, want no error", err)
	}
	if readNode.Labels["example.com/rack"] != "r1" || readNode.Status.Conditions[0].Reason != "AgentReady" || *readLease.Spec.LeaseDurationSeconds != 40 {
		return fmt.Errorf("stored objects = %v, %v, want what was stored, not what the caller made of it", readNode, readLease)
	}
	return nil
}

func checkRestart(ctx context.Context, b *Backend) error {
	if b.Restart == nil {
		return &AbsentError{"objects are not persisted"}
	}
	node, err := register(ctx, b, b.Name("restarted"), here)
	if err != nil {
		return err
	}
	lease, err := renew(ctx, b, b.Name("restarted"), here)
	if err != nil {
		return err
	}
	if err := published(ctx, b, b.Name("restarted"), 5, 5); err != nil {
		return err
	}
	if err := b.restart(ctx); err != nil {
		return fmt.Errorf("restart: %w", err)
	}
	again, err := register(ctx, b, b.Name("restarted"), here)
	if err != nil {
		return err
	}
	if again.UID != node.UID {
		return fmt.Errorf("uid after a restart = %s, want %s", again.UID, node.UID)
	}
	read, err := b.Client.Lease(ctx, b.Name("restarted"))
	if err != nil {
		return fmt.Errorf("Lease() after a restart = %w, want no error", err)
	}
	var next *coordinationv1.Lease
	next, err = b.Client.RenewLease(ctx, controlplane.Renew(read, time.Now().Add(-time.Hour)))
	if err != nil {
		return fmt.Errorf("RenewLease() after a restart = %w, want no error", err)
	}
	if next.UID != lease.UID || !lease.Spec.RenewTime.Before(next.Spec.RenewTime) {
		return fmt.Errorf("RenewLease() after a restart = %v, want uid %s and renewTime after %v", next, lease.UID, lease.Spec.RenewTime)
	}
	events, can, err := eventsOf(ctx, b, b.Name("restarted"))
	if err != nil {
		return err
	}
	if can && len(events) != 5 {
		return fmt.Errorf("Events() after a restart = %d, want 5", len(events))
	}
	return nil
}
