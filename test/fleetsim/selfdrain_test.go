package fleetsim

import (
	"context"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/agent/maintenance"
	"hostler.io/hostler/agent/selfdrain"
	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/store/memory"
	"hostler.io/hostler/internal/loop"
	record "hostler.io/hostler/shutdown/journal"
)

// commandSelfDrain stops the pods of a host that drains itself.
const commandSelfDrain memory.Call = "SelfDrain"

// toleration is how long hosts tolerate a NoExecute taint, or the end of their Lease.
const toleration = 30 * time.Second

// addSelfDrain adds the controller that drains the host if it is cut off or tainted.
func (a *agent) addSelfDrain() {
	booted := a.h.booted
	a.selfDrain = selfdrain.New(selfdrain.Options{
		Policy: func() selfdrain.Policy { return selfdrain.Policy{OnTaint: true, OnLost: true, Toleration: toleration} },
		Jobs:   func() selfdrain.Jobs { return selfdrain.Jobs{Node: true, Lease: true, Left: a.reporter.Left() != nil} },
		Read: func(ctx context.Context) ([]corev1.Taint, error) {
			node, err := a.client.Node(ctx, a.h.name)
			if errors.Is(err, controlplane.ErrNotFound) {
				return nil, nil
			}
			if err != nil {
				return nil, err
			}
			return node.Spec.Taints, nil
		},
		Drainer: drainer{a}, Store: file{a, "self-drain"}, Flush: a.flusher("self-drain"), Boot: a.h.machine().BootID, Of: a.h.name,
		Now: func() selfdrain.Instant { return selfdrain.Instant{Boot: time.Since(booted), Wall: time.Now()} },
		Fix: func(selfdrain.Cause) string { return "" }, Unknown: func() string { return "" }, Announce: func(string, string, string) {}, Log: a.h.w.journal.logger(a.h.name),
	})
	a.add("self-drain", func(ctx context.Context, _ *loop.Loop) error { return a.selfDrain.Run(ctx) })
}

// drainer stops the pods of the host for its self-drain controller.
type drainer struct{ a *agent }

// DrainForCause implements selfdrain.Drainer.
func (d drainer) DrainForCause(ctx context.Context, o maintenance.Order, began func(time.Time) error) (record.Record, error) {
	if err := began(time.Now()); err != nil {
		return record.Record{}, err
	}
	return d.a.stopPods(ctx, commandSelfDrain, false, func() error {
		d.a.h.w.truth.selfDrains(d.a.h, o.Trigger)
		return nil
	})
}

// Undo implements selfdrain.Drainer.
func (d drainer) Undo(ctx context.Context, _ maintenance.Order) (bool, error) {
	err := d.a.command(ctx, commandUndo, func() error { return nil })
	return err == nil, err
}

// selfDrains checks a host that stops its pods because its Lease has ended, or because of a taint.
func (t *truth) selfDrains(h *host, why record.Trigger) {
	f, decided := t.of(h.name), t.w.serving.asked
	t.w.note(h.name + " drains itself: " + string(why))
	contact := within(f.contacts, decided, leaseDuration+toleration)
	if contact.IsZero() {
		return
	}
	ago := decided.Sub(contact).Round(time.Millisecond)
	switch {
	case why == record.TriggerLeaseLost:
		t.w.fail("no host in contact drains itself", "%s drains itself because its Lease has ended, and it has renewed its Lease %v before", h.name, ago)
	case f.tainted.IsZero() && decided.Sub(f.untainted) > slack:
		t.w.fail("no host drains itself without a taint", "%s drains itself because of a taint that its Node has not had for %v, and it has renewed its Lease %v before", h.name, decided.Sub(f.untainted).Round(time.Millisecond), ago)
	}
}

// within returns the last of some times that is within a time before a decision, and early enough that the decision could know
// it; zero if there is none.
func within(times []time.Time, decided time.Time, grace time.Duration) time.Time {
	for _, at := range slices.Backward(times) {
		switch {
		case at.After(decided.Add(-slack)):
		case at.After(decided.Add(-grace)):
			return at
		default:
			return time.Time{}
		}
	}
	return time.Time{}
}
