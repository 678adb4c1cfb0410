package report

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controlplanetest"
	"hostler.io/hostler/shutdown"
)

func TestANodeThatHasLeftIsNotRegisteredAgain(t *testing.T) {
	for name, c := range map[string]struct {
		err     error
		pause   bool
		message string
	}{
		"it is gone":                        {nil, true, "alice deregistered the Node"},
		"somebody with the right has to":    {controlplane.ErrForbidden, true, "which a user with the permission has to delete"},
		"the control plane does not answer": {controlplane.ErrUnavailable, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, d *desk) {
				d.start(t)
				d.watch(t)
				if c.err != nil {
					d.client.Inject(controlplanetest.Leave, controlplanetest.Fault{Err: c.err})
				}
				if err := d.Leave(t.Context(), "alice"); !errors.Is(err, c.err) {
					t.Errorf("Leave() = %v, want %v", err, c.err)
				}
				written := d.client.Calls(controlplanetest.UpdateStatus)
				if c.err == controlplane.ErrForbidden { // a user with the permission does so
					d.client.Heal()
					if err := d.client.Leave(t.Context(), nodeName, controlplane.Identity{}); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(time.Hour)
				if got := d.client.Calls(controlplanetest.UpdateStatus) == written && d.client.Calls(controlplanetest.Register) == 1; got != c.pause {
					t.Errorf("nothing written after it: %v, want %v", got, c.pause)
				}
				if got := d.stored(t) == nil; got != c.pause {
					t.Errorf("the Node is gone: %v, want %v", got, c.pause)
				}
				if s := d.NodeState(); !strings.Contains(s.Waits, c.message) || (s.Waits == "") == c.pause {
					t.Errorf("NodeState() = %+v, want that it says %q", s, c.message)
				}
				if n, _, _, err := d.Current(); n == nil || err != nil {
					t.Errorf("Current() = %v, %v, want the host to be known", n, err)
				}
				for _, boot := range []string{"one", "two"} {
					next := d.again(t, boot)
					if err := next.once(t.Context(), nil); err != nil || (d.stored(t) == nil) != c.pause || (next.Left() != nil) != c.pause {
						t.Errorf("a round of the next start in boot %s = %v, Node there: %v, want it to stay away: %v", boot, err, d.stored(t) != nil, c.pause)
					}
					if s := next.NodeState(); !strings.Contains(s.Waits, c.message) || (s.Waits == "") == c.pause {
						t.Errorf("NodeState() after a start in boot %s = %+v, want that it says %q", boot, s, c.message)
					}
				}
			})
		})
	}
}

func TestALeaseThatStaysBehindEndsByItself(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		d.start(t)
		d.client.Inject(controlplanetest.Leave, controlplanetest.Fault{LeaseStays: true})
		if err := d.Leave(t.Context(), "alice"); !errors.Is(err, controlplane.ErrLeaseStays) {
			t.Errorf("Leave() = %v, want that the lease stays", err)
		}
		time.Sleep(time.Hour)
		if left := d.Left(); left == nil || !left.Deleted || d.stored(t) != nil {
			t.Errorf("Left() = %+v, the Node %v, want it gone for good", left, d.stored(t))
		}
	})
}

func TestANodeThatReturnsIsRegisteredAtOnce(t *testing.T) {
	for name, returns := range map[string]func(*testing.T, *desk) *desk{
		"in the same run of the agent": func(_ *testing.T, d *desk) *desk { return d },
		"in a later one":               func(t *testing.T, d *desk) *desk { return d.again(t, "two") },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, d *desk) {
				if err := d.once(t.Context(), nil); err != nil {
					t.Fatal(err)
				}
				if err := d.Leave(t.Context(), "alice"); err != nil {
					t.Fatal(err)
				}
				d = returns(t, d)
				d.start(t)
				if d.stored(t) != nil {
					t.Fatal("the Node is there before it returns")
				}
				if changed, err := d.Return(t.Context(), "bob"); !changed || err != nil {
					t.Errorf("Return() = %v, %v, want it done", changed, err)
				}
				synctest.Wait()
				if n := d.stored(t); n == nil || ready(n).Status != corev1.ConditionTrue || d.Left() != nil || d.NodeState().Waits != "" {
					t.Errorf("the Node = %v, Left() = %v, NodeState() = %+v, want it Ready, and nothing said of leaving", n, d.Left(), d.NodeState())
				}
				if changed, err := d.Return(t.Context(), "bob"); changed || err != nil {
					t.Errorf("Return() of a Node that is there = %v, %v, want nothing done", changed, err)
				}
				next := d.again(t, "three")
				if next.Left() != nil {
					t.Errorf("Left() after the next start = %v, want it forgotten", next.Left())
				}
			})
		})
	}
}

func TestADepartureIsOfOneNodeAndOneControlPlane(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		if err := errors.Join(d.once(t.Context(), nil), d.Leave(t.Context(), "alice")); err != nil {
			t.Fatal(err)
		}
		left := *d.o.Departures.get()
		for name, elsewhere := range map[string]Departure{
			"another name":          {Node: "node-b", ControlPlane: left.ControlPlane},
			"another control plane": {Node: left.Node, ControlPlane: "another"},
		} {
			d.o.Departures.set(&elsewhere)
			if next := d.again(t, "two"); next.Left() != nil || next.NodeState().Waits != "" {
				t.Errorf("Left() of a departure under %s = %v, want none", name, next.Left())
			}
		}
	})
}

func TestTheFleetGetsNoMoreEventsOfANodeThatHasLeft(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		d.start(t)
		if err := d.Leave(t.Context(), "alice"); err != nil {
			t.Fatal(err)
		}
		d.set(func() { d.guard = shutdown.Status{State: shutdown.Draining, Reason: "reboot"} })
		d.Changed()
		time.Sleep(time.Minute)
		synctest.Wait()
		counted := len(d.counted)
		if reported := d.events("NodeNotReady"); counted == 0 || len(reported) > 0 {
			t.Errorf("%d transitions counted, Events = %q, want some and none", counted, reported)
		}
		d.o.Recorder.Record(controlplane.NodeReference(nodeName), corev1.EventTypeNormal, "ImagesCollected", "removed 9 images")
		if reported := d.events("ImagesCollected", "Left"); len(reported) != 1 || !strings.HasPrefix(reported[0], "Left: ") {
			t.Errorf("Events = %q, want that it has left and nothing after it", reported)
		}
		if _, err := d.Return(t.Context(), "alice"); err != nil {
			t.Fatal(err)
		}
		d.o.Recorder.Record(controlplane.NodeReference(nodeName), corev1.EventTypeNormal, "ImagesCollected", "removed 9 images")
		if reported := d.events("ImagesCollected"); len(reported) != 1 {
			t.Errorf("after its return Events = %q, want one", reported)
		}
	})
}

func TestAKubeletsNodeIsNotRemoved(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		d.beside()
		d.client.Create(d.kubelets())
		if err := d.Leave(t.Context(), "alice"); !errors.Is(err, ErrNotOurs) || d.stored(t) == nil {
			t.Errorf("Leave() = %v, want it refused", err)
		}
	})
}
