package report

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controlplanetest"
	"hostler.io/hostler/status"
)

// again returns the desk of an agent that starts again in that boot, with the stored state on the
// host and on the control plane.
func (d *desk) again(t *testing.T, boot string) *desk {
	t.Helper()
	next := newDesk(t)
	o := next.o
	next.client, o.Client = d.client, d.client
	next.kept, o.Store, o.Boot, o.Node = d.kept, d.kept, boot, d.o.Node
	next.noted, o.Notes = d.noted, d.noted
	o.Departures = OpenDepartures(d.noted, nodeName, d.client.Type(), o.Log)
	o.Recorder = controlplane.NewRecorder(d.client, nodeName, time.Now, o.Departures.Gone, discard())
	next.Reporter = New(o)
	next.holdToTable(t)
	return next
}

// decide cordons or uncordons as user alice.
func (d *desk) decide(t *testing.T, unschedulable bool) (changed bool, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), WriteTimeout)
	defer cancel()
	return d.Cordon(ctx, Decision{Unschedulable: unschedulable, By: "alice", At: time.Now()})
}

func (d *desk) wantCordoned(t *testing.T, when string, want bool) {
	t.Helper()
	if n := d.stored(t); n == nil || n.Spec.Unschedulable != want {
		t.Errorf("%s the stored Node is %+v, want unschedulable: %v", when, n, want)
	}
}

func TestACordonIsStoredAndSurvivesRestartAndReboot(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		d = d.again(t, "one")
		d.start(t)
		for _, want := range []struct{ to, changed bool }{{true, true}, {true, false}, {false, true}, {true, true}} {
			changed, err := d.decide(t, want.to)
			if err != nil || changed != want.changed {
				t.Errorf("Cordon(%v) = %v, %v, want a change: %v", want.to, changed, err, want.changed)
			}
			d.wantCordoned(t, "decided,", want.to)
			if n, _, _, _ := d.Current(); n.Spec.Unschedulable != want.to {
				t.Errorf("status shows unschedulable %v, want %v at once", n.Spec.Unschedulable, want.to)
			}
		}
		for _, boot := range []string{"one", "two"} {
			next := d.again(t, boot)
			if err := next.once(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			next.wantCordoned(t, "started again in boot "+boot+",", true)
			if by := next.cordons.decided(); by == nil || by.By != "alice" || !by.Delivered {
				t.Errorf("who cordoned it is %+v in boot %s, want alice", by, boot)
			}
		}
	})
}

// A downgrade renames the state file.
func TestADecisionOutlivesTheStore(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		next := func() {
			t.Helper()
			d.kept = &shelf{}
			d = d.again(t, "one")
			if err := d.once(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
		}
		next()
		if _, err := d.decide(t, true); err != nil {
			t.Fatal(err)
		}
		// The embedded control plane loses its Node, too.
		if err := d.client.Leave(t.Context(), nodeName, controlplane.Identity{}); err != nil {
			t.Fatal(err)
		}
		next()
		d.wantCordoned(t, "created again,", true)
		if by := d.Decided(); by == nil || by.By != "alice" {
			t.Errorf("Decided() = %+v, want alice's word", by)
		}
		if err := d.Leave(t.Context(), "bob"); err != nil {
			t.Fatal(err)
		}
		next()
		if left := d.Left(); left == nil || left.By != "bob" || d.stored(t) != nil {
			t.Errorf("Left() = %v, the Node %v, want it to stay away as bob said", left, d.stored(t))
		}
	})
}

func TestACordonOutlivesTheNode(t *testing.T) {
	for name, configured := range map[string]bool{"configured to be open": false, "configured to be cordoned": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, d *desk) {
				options := d.o.Node()
				options.Unschedulable = configured
				d.o.Node = func() status.Options { return options }
				d = d.again(t, "one")
				d.start(t)
				d.wantCordoned(t, "created,", configured)
				if _, err := d.decide(t, !configured); err != nil {
					t.Fatal(err)
				}
				if err := d.client.Leave(t.Context(), nodeName, controlplane.Identity{}); err != nil {
					t.Fatal(err)
				}
				d.set(func() { d.guard.Reason = "something to write" })
				d.Changed()
				time.Sleep(time.Minute)
				d.wantCordoned(t, "created again after a person's word,", !configured)
			})
		})
	}
}

// TestARestoredCordonOfARebootThatIsOverIsUndone has a store that goes back to a moment in which the Node was cordoned.
func TestARestoredCordonOfARebootThatIsOverIsUndone(t *testing.T) {
	for name, c := range map[string]struct {
		own, amid, want bool
		forgotten       bool // the host does not know its last decision
		unread          bool // it could not be read
	}{
		"by hostler":                {own: true},
		"by hostler, and forgotten": {own: true, forgotten: true},
		"by hostler, and unread":    {own: true, forgotten: true, unread: true, want: true},
		"by hostler, in the reboot": {own: true, amid: true, want: true},
		"by a person":               {want: true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, d *desk) {
				d.o.Unread = c.unread
				d.start(t)
				for _, cordon := range []bool{true, c.amid} {
					if _, err := d.Cordon(t.Context(), Decision{Unschedulable: cordon, Own: cordon, By: "hostler"}); err != nil {
						t.Fatal(err)
					}
				}
				d.wantCordoned(t, "before,", c.amid)
				if c.forgotten {
					d.cordons.set(nil)
				}
				if err := d.client.Edit(t.Context(), nodeName, func(n *corev1.Node) { controlplane.SetCordon(n, true, c.own) }); err != nil {
					t.Fatal(err)
				}
				d.set(func() { d.guard.Reason = "something to write" })
				d.Changed()
				time.Sleep(time.Minute)
				d.wantCordoned(t, "after the restore,", c.want)
				if n := d.stored(t); controlplane.OwnCordon(n) != (c.own && c.want) {
					t.Errorf("%s is on the Node: %t", controlplane.AnnotationCordoned, controlplane.OwnCordon(n))
				}
			})
		})
	}
}

// TestAnUncordonByAnotherClientTakesTheMarkAlong has a person who uncordons the Node in a reboot, as kubectl does, and
// cordons it later.
func TestAnUncordonByAnotherClientTakesTheMarkAlong(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		d.start(t)
		if _, err := d.Cordon(t.Context(), Decision{Unschedulable: true, Own: true, By: "hostler"}); err != nil {
			t.Fatal(err)
		}
		for i, cordon := range []bool{false, true} {
			if err := d.client.Edit(t.Context(), nodeName, func(n *corev1.Node) { n.Spec.Unschedulable = cordon }); err != nil {
				t.Fatal(err)
			}
			d.set(func() { d.guard.Reason = fmt.Sprint("something to write ", i) })
			d.Changed()
			time.Sleep(time.Minute)
			d.wantCordoned(t, "after a person,", cordon)
			if n := d.stored(t); n.Annotations[controlplane.AnnotationCordoned] != "" {
				t.Errorf("the mark of hostler's cordon is still there, cordoned: %t", cordon)
			}
		}
	})
}

func TestACordonBeforeTheNodeIsRegisteredCounts(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		d = d.again(t, "one")
		if changed, err := d.decide(t, true); !errors.Is(err, errNoNode) || !changed {
			t.Errorf("Cordon() = %v, %v, want a change that the control plane does not know of", changed, err)
		}
		if err := d.once(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		d.wantCordoned(t, "created,", true)
		if got := d.cordons.decided(); got == nil || !got.Delivered {
			t.Errorf("decided() = %+v, want it delivered", got)
		}
	})
}

// controlPlaneAway makes the control plane unavailable, except to the test.
func (d *desk) controlPlaneAway() {
	d.client.Inject(controlplanetest.Any, controlplanetest.Fault{Err: controlplane.ErrUnavailable})
}

// cordoner fails to cordon while the control plane is unavailable. The fake's own Cordon does so
// only partly.
type cordoner struct {
	*controlplanetest.Fake
	calls int
	err   error
	hangs int // how many calls hang
}

func (c *cordoner) Cordon(ctx context.Context, name string, unschedulable, own bool) (*corev1.Node, error) {
	c.calls++
	if c.hangs > 0 {
		c.hangs--
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if c.err != nil {
		return nil, c.err
	}
	return c.Fake.Cordon(ctx, name, unschedulable, own)
}

func TestACordonReachesAControlPlaneThatIsUnreachableLater(t *testing.T) {
	for name, restart := range map[string]bool{"the agent lives on": false, "the agent is started again meanwhile": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, d *desk) {
				d = d.again(t, "one")
				plane := &cordoner{Fake: d.client}
				d.o.Client = plane
				if err := d.once(t.Context(), nil); err != nil {
					t.Fatal(err)
				}
				plane.err = controlplane.ErrUnavailable
				d.controlPlaneAway()
				for _, want := range []bool{true, false} { // requested twice
					if changed, err := d.decide(t, true); !errors.Is(err, controlplane.ErrUnavailable) || changed != want {
						t.Errorf("Cordon() = %v, %v, want that the control plane is away, and a change: %v", changed, err, want)
					}
				}
				d.wantCordoned(t, "meanwhile", false)
				if restart {
					d = d.again(t, "two")
					d.o.Client = plane
				}
				if err := d.once(t.Context(), nil); err == nil {
					t.Error("a round without a control plane = nil, want an error")
				}
				plane.err = nil
				d.client.Heal()
				if err := d.once(t.Context(), nil); err != nil {
					t.Fatal(err)
				}
				d.wantCordoned(t, "when it is back", true)
				calls := plane.calls
				time.Sleep(time.Hour)
				if err := d.once(t.Context(), nil); err != nil || plane.calls != calls {
					t.Errorf("the next round = %v with %d more calls, want one report", err, plane.calls-calls)
				}
			})
		})
	}
}

func TestACordonWhoseCallerGivesUpIsKept(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		d = d.again(t, "one")
		d.start(t)
		d.client.Inject(controlplanetest.UpdateStatus, controlplanetest.Fault{Hang: true})
		d.set(func() { d.guard.Reason = "something to write" })
		d.Changed()
		time.Sleep(time.Second) // the round hangs now
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		changed, err := d.Cordon(ctx, Decision{Unschedulable: true, By: "alice"})
		if !errors.Is(err, context.DeadlineExceeded) || !changed {
			t.Errorf("Cordon() while a round hangs = %v, %v, want it given up in time", changed, err)
		}
		d.client.Heal()
		time.Sleep(time.Minute)
		d.wantCordoned(t, "when the control plane answers again", true)
	})
}

func TestAShutdownsReportOvertakesACordonThatHangs(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		d = d.again(t, "one")
		plane := &cordoner{Fake: d.client}
		d.o.Client = plane
		d.start(t)
		plane.hangs = 1
		reported := make(chan error, 1)
		go func() {
			_, err := d.decide(t, true)
			reported <- err
		}()
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		began := time.Now()
		if err := d.ReportShutdown(ctx, drainingStatus()); err != nil || time.Since(began) > 0 {
			t.Errorf("ReportShutdown() = %v after %v, want an immediate report", err, time.Since(began))
		}
		if err := <-reported; !errors.Is(err, errPreempted) {
			t.Errorf("Cordon() = %v, want it overtaken", err)
		}
		time.Sleep(time.Minute)
		d.wantCordoned(t, "when the control plane answers again,", true)
	})
}

func TestALaterCordonOnTheControlPlaneWins(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		d = d.again(t, "one")
		d.start(t)
		if _, err := d.decide(t, true); err != nil {
			t.Fatal(err)
		}
		if err := d.client.Edit(t.Context(), nodeName, func(n *corev1.Node) { n.Spec.Unschedulable = false }); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		d.wantCordoned(t, "after an uncordon from afar", false)
		if got := d.cordons.decided(); got != nil {
			t.Errorf("decided() = %+v, want it forgotten", got)
		}
		next := d.again(t, "two")
		if err := next.once(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		next.wantCordoned(t, "and in the next boot", false)
	})
}

// The cluster adds a taint to a cordoned Node, for which the Node must not be read again.
func TestACordonByAnotherClientIsReadOnce(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		d.start(t)
		d.watch(t)
		reads := d.client.Calls(controlplanetest.Node)
		for _, cordoned := range []bool{true, false} {
			var taints []corev1.Taint
			if cordoned {
				taints = []corev1.Taint{{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}}
			}
			d.edit(t, func(n *corev1.Node) { n.Spec.Unschedulable = cordoned })
			synctest.Wait()
			d.edit(t, func(n *corev1.Node) { n.Spec.Taints = taints })
			synctest.Wait()
			node, _, _, _ := d.Current()
			if node.Spec.Unschedulable != cordoned || len(node.Spec.Taints) != len(taints) {
				t.Errorf("cordoned: %v: the Node is known as %+v, want it as it is", cordoned, node.Spec)
			}
		}
		if got := d.client.Calls(controlplanetest.Node) - reads; got != 2 {
			t.Errorf("the Node was read %d times, want once for each change of the cordon", got)
		}
		d.edit(t, func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}}
		})
		synctest.Wait()
		if got := d.client.Calls(controlplanetest.Node) - reads; got != 3 {
			t.Errorf("the Node was read %d times, want once more for a taint that somebody has set", got)
		}
	})
}
