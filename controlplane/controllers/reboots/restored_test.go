package reboots_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controllers/lifecycle"
	"hostler.io/hostler/controlplane/controllers/reboots"
	"hostler.io/hostler/controlplane/slots"
	"hostler.io/hostler/controlplane/store"
	"hostler.io/hostler/controlplane/store/memory"
)

// TestARestoreHidesNoHostThatReboots has a server that runs for long, and a restore that loses the slot of n1. n1 is down
// for its reboot, or says that it reboots.
func TestARestoreHidesNoHostThatReboots(t *testing.T) {
	for name, c := range map[string]struct {
		down     bool
		excluded bool // n1 is no member of the group
		broken   bool // the record of another group cannot be read
	}{
		"it is down":              {down: true},
		"it is down and excluded": {down: true, excluded: true},
		"it says so":              {},
		"it says so, another group is unreadable": {broken: true},
		"it says so, and is excluded":             {excluded: true, broken: true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r rig) {
				p := oneSlot(t)
				other := p["default"]
				other.Group = "other"
				p["other"] = other
				server := r.serveAs("server-1", r.store, p, slog.New(slog.DiscardHandler), func(s *reboots.Controller) {
					s.Alive = func(node string, _ types.UID, _, _ time.Time) lifecycle.Sign {
						is := !c.down || node != "n1"
						return lifecycle.Sign{Alive: is, Idle: is, Known: time.Now()}
					}
				})
				r.node("n1", "a", corev1.ConditionTrue, func(n *corev1.Node) {
					if c.excluded {
						n.Labels[lifecycle.LabelExclude] = ""
					}
				})
				if c.broken {
					r.store.PutRaw(store.Kind{Name: store.Slots, GVK: schema.GroupVersionKind{Group: "hostler.io", Version: "v1", Kind: "SlotGroup"}}, "other", []byte("{"))
				}
				time.Sleep(2 * time.Hour)
				r.store.Restore(r.store.Snapshot())
				time.Sleep(time.Minute)
				if !c.down {
					edit(r.store, "n1", at("r1", controlplane.RebootRebooting))
				}
				time.Sleep(time.Minute)
				if wait, err := server.Request(r.Context(), "default", "x"); err == nil && wait == nil {
					r.Error("x has a slot, want that it waits for n1")
				}
			})
		})
	}
}

// TestAServerThatStartsAfterARestoreTrustsNoOldHolder lets x have given back its slot after the backup was made. It requests one
// again while n1 reboots, whose slot is lost.
func TestAServerThatStartsAfterARestoreTrustsNoOldHolder(t *testing.T) {
	inBubble(t, func(r rig) {
		server := r.serveGroups("server-1", r.store, oneSlot(t))
		r.node("n1", "a", corev1.ConditionTrue)
		time.Sleep(time.Minute)
		if wait, err := server.Request(r.Context(), "default", "x"); wait != nil || err != nil {
			r.Fatalf("Request() = %v, %v, want a slot for x", wait, err)
		}
		edit(r.store, "n1", at("r1", controlplane.RebootVerifying)) // with the slot that x has given back
		time.Sleep(time.Minute)
		if wait, err := server.Request(r.Context(), "default", "x"); wait == nil && err == nil {
			r.Error("x may use its old slot, want that it waits for n1")
		}
		edit(r.store, "n1", at("r1", controlplane.RebootDone))
		time.Sleep(time.Minute)
		if wait, err := server.Request(r.Context(), "default", "x"); wait != nil || err != nil {
			r.Errorf("Request() once n1 has rebooted = %v, %v, want the slot", wait, err)
		}
	})
}

// TestOldHoldersInExcessWaitForAPerson restores a record with two clients when the group has one slot. Both may reboot.
func TestOldHoldersInExcessWaitForAPerson(t *testing.T) {
	inBubble(t, func(r rig) {
		two := oneSlot(t)
		p := two["default"]
		p.Slots = 2
		two["default"] = p
		before := r.serveGroups("server-1", r.store.Process(), two)
		r.node("n1", "a", corev1.ConditionTrue)
		time.Sleep(time.Minute)
		for _, id := range []string{"x", "y"} {
			if wait, err := before.Request(r.Context(), "default", id); wait != nil || err != nil {
				r.Fatalf("Request() = %v, %v, want a slot for %s", wait, err, id)
			}
		}
		server := r.serveGroups("server-2", r.store.Process(), oneSlot(t))
		time.Sleep(2 * time.Minute)
		r.store.Restore(r.store.Snapshot())
		time.Sleep(2 * time.Minute)
		for _, id := range []string{"x", "y"} {
			if _, err := server.Request(r.Context(), "default", id); err == nil || !strings.Contains(err.Error(), "(x, y): run `hostler fleet slots release`") {
				r.Errorf("Request() = %v, want that %s waits, the holders, and what to do", err, id)
			}
		}
		if err := server.Release(r.Context(), "default", "y", "root", "it has rebooted"); err != nil {
			r.Fatal(err)
		}
		if wait, err := server.Request(r.Context(), "default", "x"); wait != nil || err != nil {
			r.Errorf("Request() = %v, %v, want that x may use its slot", wait, err)
		}
	})
}

// TestARestoreDuringAnOutageMayBeUnnoticed has a store that is as far again when it answers: only etcd says that it was restored.
func TestARestoreDuringAnOutageMayBeUnnoticed(t *testing.T) {
	inBubble(t, func(r rig) {
		server := r.serveGroups("server-1", r.store, oneSlot(t))
		time.Sleep(2 * time.Hour)
		r.node("n1", "a", corev1.ConditionTrue, at("r1", controlplane.RebootRebooting)) // its slot is lost
		r.store.Inject(memory.Ping, memory.Fault{Err: controlplane.ErrUnavailable})
		time.Sleep(10 * time.Second)
		r.store.Heal()
		time.Sleep(time.Minute)
		if why := r.asks(server, "x"); why != slots.Full {
			r.Errorf("x: %q beside n1 after an outage, want %q", why, slots.Full)
		}
		time.Sleep(time.Hour)
		if why := r.asks(server, "x"); why != "" {
			r.Errorf("x: %q an hour later, want a slot", why)
		}
	})
}
