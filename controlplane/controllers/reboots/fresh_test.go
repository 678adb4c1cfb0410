package reboots_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controllers/reboots"
	"hostler.io/hostler/controlplane/slots"
	"hostler.io/hostler/controlplane/store"
	"hostler.io/hostler/controlplane/store/memory"
)

// mute is a store whose watch of Nodes may be silent, while everything else answers.
type mute struct {
	*memory.Store
	silent atomic.Bool
}

// Follow implements store.Store.
func (m *mute) Follow(ctx context.Context, kind store.Kind, scope store.Scope, f store.Follower) error {
	if kind.Name == store.Nodes.Name {
		f = &muted{f, m}
	}
	return m.Store.Follow(ctx, kind, scope, f)
}

// muted forwards the reports of a watch that is not silent.
type muted struct {
	store.Follower
	m *mute
}

// Set implements store.Follower.
func (f *muted) Set(name string, o store.Object) {
	if !f.m.silent.Load() {
		f.Follower.Set(name, o)
	}
}

// Confirmed implements store.Confirmer.
func (f *muted) Confirmed(at time.Time) {
	if !f.m.silent.Load() {
		store.Confirmed(f.Follower, at)
	}
}

// TestNoSlotFromNodesOfBefore has a server whose watch of Nodes has been silent for a few seconds when a slot becomes
// free. Meanwhile, another host of the group has become not ready.
func TestNoSlotFromNodesOfBefore(t *testing.T) {
	part, err := slots.ParsePart("0")
	if err != nil {
		t.Fatal(err)
	}
	policies := func(n int) reboots.Policies {
		return reboots.Policies{"default": {Group: "default", Slots: n, MaxUnavailable: part}}
	}
	for name, c := range map[string]struct {
		holds bool // x holds the slot
		slots int  // before free is called
		agent bool // n1 waits for the slot
		free  func(r rig, silent, other *reboots.Controller)
	}{
		"a client requests it":                     {slots: 1},
		"a client gives it back on another server": {true, 1, true, func(r rig, _, other *reboots.Controller) { r.gives(other, "x") }},
		"a client gives it back on this server":    {true, 1, true, func(r rig, silent, _ *reboots.Controller) { r.gives(silent, "x") }},
		"a person releases it on another server": {true, 1, true, func(r rig, _, other *reboots.Controller) {
			if err := other.Release(r.Context(), "default", "x", "anna", "gone"); err != nil {
				r.Fatal(err)
			}
		}},
		"the configuration adds it": {false, 0, true, func(_ rig, silent, other *reboots.Controller) {
			silent.SetPolicies(policies(1))
			other.SetPolicies(policies(1))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r rig) {
				r.node("n1", "a", corev1.ConditionTrue)
				r.node("n2", "a", corev1.ConditionTrue)
				m := &mute{Store: r.store}
				silent := r.serveGroups("server-1", m, policies(c.slots))
				other := r.serveGroups("server-2", r.store, policies(c.slots))
				want := []string{}
				if c.holds {
					if why := r.asks(other, "x"); why != "" {
						t.Fatalf("x gets no slot: %s", why)
					}
					want = append(want, "x")
				}
				if c.agent {
					edit(r.store, "n1", at("r1", controlplane.RebootWaiting))
				}
				r.want("before", want...)

				m.silent.Store(true)
				edit(r.store, "n2", setReady(corev1.ConditionFalse))
				time.Sleep(3 * time.Second)
				if c.free != nil {
					c.free(r, silent, other)
				} else if why := r.asks(silent, "n1"); why != slots.Unconfirmed {
					t.Errorf("n1 asks: %q, want %q", why, slots.Unconfirmed)
				}
				r.want("while the watch is silent")
				m.silent.Store(false)
				edit(r.store, "n2", setReady(corev1.ConditionTrue))
				if r.want("when all are ready", map[bool][]string{true: {"n1"}}[c.agent]...); !c.agent {
					if why := r.asks(silent, "n1"); why != "" {
						t.Errorf("n1 asks: %q, want a slot", why)
					}
				}
			})
		})
	}
}

// gives gives the slot of a client back.
func (r rig) gives(c *reboots.Controller, id string) {
	r.Helper()
	if err := c.GiveBack(r.Context(), "default", id); err != nil {
		r.Fatal(err)
	}
}
