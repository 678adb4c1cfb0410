package controlplane

import (
	"context"
	"errors"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// clock returns times that never decrease, even if the wall clock is set back.
type clock struct {
	wall     func() time.Time
	returned time.Time // the last returned time
	at       time.Time // when it was returned, with its monotonic reading
}

// now returns the wall clock's time, or the last returned time plus the elapsed time if that is
// later.
func (c *clock) now() time.Time {
	at, now := time.Now(), c.wall().Round(0)
	if steady := c.returned.Add(at.Sub(c.at)); !c.returned.IsZero() && steady.After(now) {
		now = steady
	}
	c.returned, c.at = now, at
	return now
}

// attempt renews the Lease once. If no stored Lease is known, or if another client has written it, attempt reads it
// first.
func (k *LeaseKeeper) attempt(ctx context.Context) (err error) {
	defer func() { k.policy.Watch.NoteAnswer(err) }()
	if k.lease.ResourceVersion != "" {
		if err = k.renew(ctx); !errors.Is(err, ErrConflict) {
			return err
		}
	}
	if err := k.reread(ctx); err != nil {
		return err
	}
	return k.renew(ctx)
}

func (k *LeaseKeeper) renew(ctx context.Context) error {
	lease := Renew(k.lease, k.clock.now())
	SetOwner(lease, k.policy.Node, *k.owner.Load())
	delete(lease.Annotations, AnnotationRebooting)
	if k.policy.Rebooting() {
		metav1.SetMetaDataAnnotation(&lease.ObjectMeta, AnnotationRebooting, "true")
	}
	wants := *k.wanted.Load()
	lease.Spec.LeaseDurationSeconds = new(int32(wants.duration / time.Second))
	k.clock.returned = lease.Spec.RenewTime.Time
	k.clones.recordAttempt(lease)
	ctx, cancel := context.WithTimeout(ctx, k.deadline)
	defer cancel()
	stored, err := k.client.RenewLease(ctx, lease)
	if err != nil {
		return err
	}
	k.lease = k.ours(stored)
	k.lease.Spec.LeaseDurationSeconds = lease.Spec.LeaseDurationSeconds
	k.takeover, k.held, k.kept = false, true, wants
	k.clones.goneAfter = 3 * wants.interval
	k.clones.recordStored(lease)
	k.stats.Lease = k.lease
	k.stats.LastRenewed = time.Now()
	k.stats.Renewals++
	k.publish()
	return nil
}

// node returns the Node; nil if there is none, or if it is unreadable and this process held the Lease
// last: then no other machine was seen that it could belong to.
func (k *LeaseKeeper) node(ctx context.Context) (*corev1.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, k.deadline)
	defer cancel()
	node, err := k.client.Node(ctx, k.policy.Node)
	if errors.Is(err, ErrNotFound) || errors.Is(err, ErrUnreadable) && k.held {
		return nil, nil
	}
	return node, err
}

// mayCreate returns an *IdentityError if the Node belongs to another machine that may be alive. Whoever
// has the Lease gets the Node.
func (k *LeaseKeeper) mayCreate(ctx context.Context) error {
	node, err := k.node(ctx)
	if err != nil || node == nil {
		return err
	}
	ours := &corev1.Node{}
	k.policy.Holder.mark(&ours.ObjectMeta)
	_, err = claim(node, ours, nil, RegisterOptions{Lost: k.policy.Watch.isLost(), Watch: k.policy.Watch, Takeover: k.takeover})
	return err
}

// reread reads the stored Lease and keeps it if this machine may renew it.
func (k *LeaseKeeper) reread(ctx context.Context) error {
	reading, cancel := context.WithTimeout(ctx, k.deadline)
	defer cancel()
	stored, err := k.client.Lease(reading, k.policy.Node)
	if errors.Is(err, ErrNotFound) || errors.Is(err, ErrUnreadable) { // RenewLease replaces an unreadable one
		k.lease = k.lease.DeepCopy() // the last one is in published statistics
		k.lease.ResourceVersion, k.lease.UID = "", ""
		return k.mayCreate(ctx)
	}
	if err != nil {
		return err
	}
	if err := k.check(ctx, stored); err != nil {
		return err
	}
	if !identityIn(stored.Annotations).Differs(k.policy.Holder) {
		k.clones.observe(stored)
	}
	k.lease = k.ours(stored)
	return nil
}

// ours returns the stored Lease with this keeper's duration and holder. Its renewTime is never
// before the last one that this keeper sent, even if the answer is outdated.
func (k *LeaseKeeper) ours(stored *coordinationv1.Lease) *coordinationv1.Lease {
	lease := stored.DeepCopy()
	lease.Spec.HolderIdentity = k.lease.Spec.HolderIdentity
	lease.Spec.LeaseDurationSeconds = k.lease.Spec.LeaseDurationSeconds
	k.policy.mark(lease)
	if sent := k.lease.Spec.RenewTime; sent != nil && (lease.Spec.RenewTime == nil || lease.Spec.RenewTime.Before(sent)) {
		lease.Spec.RenewTime = sent.DeepCopy()
	}
	return lease
}

// mark writes the machine and the process into the annotations of the Lease.
func (p LeasePolicy) mark(lease *coordinationv1.Lease) {
	p.Holder.mark(&lease.ObjectMeta)
	if p.Instance == "" {
		return
	}
	if lease.Annotations == nil {
		lease.Annotations = map[string]string{}
	}
	lease.Annotations[AnnotationInstance] = p.Instance
}

// check returns an *IdentityError if another machine holds the stored Lease and may be alive.
func (k *LeaseKeeper) check(ctx context.Context, stored *coordinationv1.Lease) error {
	if k.takeover {
		return nil
	}
	holder := identityIn(stored.Annotations)
	if holder == (Identity{}) { // a kubelet's Lease: only its Node names the machine
		node, err := k.node(ctx)
		if err != nil || node == nil {
			return err
		}
		holder = ReporterOf(node)
	}
	if !holder.Differs(k.policy.Holder) {
		return nil
	}
	observed := k.policy.Watch.See(stored)
	if observed.Dead {
		return nil
	}
	return refusal(k.policy.Node, holder, k.policy.Holder, stored, observed)
}

// note records the result of an attempt. It logs when failures begin and end, when the Lease has
// expired, and when a clone appears and disappears.
func (k *LeaseKeeper) note(err error) {
	clone := k.clones.clone(k.policy.Node)
	failures, before := k.stats.ConsecutiveFailures, k.stats.Clone
	k.stats.LastError, k.stats.Clone = err, clone
	k.stats.ConsecutiveFailures++
	if err == nil {
		k.stats.ConsecutiveFailures = 0
	}
	k.publish()
	switch {
	case err != nil && failures == 0:
		k.outage = outage{since: time.Now()}
		k.log.Warn("cannot renew lease, retrying", "node", k.policy.Node, "error", err)
	case err == nil && failures > 0:
		k.log.Info("lease renewed again", "node", k.policy.Node, "failures", failures, "after", time.Since(k.outage.since).Round(time.Second))
	}
	_, taken := errors.AsType[*IdentityError](err) // then the Lease is another machine's
	k.held = k.held && !taken
	if expired := k.stats.Expired(k.policy.Duration); err != nil && !taken && expired != nil && !k.outage.expired {
		k.outage.expired = true
		k.log.Error("lease expired", "node", k.policy.Node, "error", expired)
	}
	switch {
	case clone != nil && before == nil:
		k.log.Error("another node shares this host's machine ID", "node", k.policy.Node, "problem", clone.Message(k.policy.Node), "hint", clone.Fix())
	case clone == nil && before != nil:
		k.log.Info("no other host renews the lease any more", "node", k.policy.Node)
	}
}
