package report

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controlplanetest"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/status"
)

// checked are facts with results of custom checks.
type checked struct {
	Facts
	custom []status.Custom
	unread bool // the folder of checks has not been read yet
}

func (c checked) Now(ctx context.Context, guarded *shutdown.Status) status.Facts {
	f := c.Facts.Now(ctx, guarded)
	f.Custom, f.Missing.Checks = c.custom, c.unread
	return f
}

// wantPublished makes checks of these types find a problem.
func (d *desk) wantPublished(types ...corev1.NodeConditionType) {
	c := checked{Facts: d.o.Facts}
	if before, ok := d.o.Facts.(checked); ok {
		c.Facts = before.Facts
	}
	for _, kind := range types {
		c.custom = append(c.custom, status.Custom{Type: kind, Reason: "Bad", Answer: status.Problem, Message: "bad"})
	}
	d.o.Facts = c
}

// customs returns the stored conditions of custom checks, without those of a node problem detector.
func (d *desk) customs(t *testing.T) []corev1.NodeConditionType {
	t.Helper()
	var types []corev1.NodeConditionType
	for _, c := range d.stored(t).Status.Conditions {
		if status.IsCustom(c.Type) {
			types = append(types, c.Type)
		}
	}
	slices.Sort(types)
	return types
}

const (
	ownDomain   = corev1.NodeConditionType("hostler.io/DiskFailing")
	otherDomain = corev1.NodeConditionType("example.com/DiskFailing")
	theirs      = corev1.NodeConditionType("KernelDeadlock")
)

func (d *desk) wantCustoms(t *testing.T, when string, want ...corev1.NodeConditionType) {
	t.Helper()
	if got := d.customs(t); !slices.Equal(got, want) {
		t.Errorf("%s the Node has conditions %v beside hostler's usual ones, want %v", when, got, want)
	}
}

func TestAConditionWithoutACheckIsRemoved(t *testing.T) {
	for name, restart := range map[string]func(t *testing.T, d *desk) *desk{
		"while the agent runs": func(_ *testing.T, d *desk) *desk { return d },
		"during a restart": func(t *testing.T, d *desk) *desk {
			d.client.Forget() // like a client that starts again
			return d.again(t, "one")
		},
		"during a reboot": func(t *testing.T, d *desk) *desk { d.client.Forget(); return d.again(t, "two") },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, d *desk) {
				round := func(d *desk) {
					t.Helper()
					if err := d.once(t.Context(), nil); err != nil {
						t.Fatal(err)
					}
				}
				d.wantPublished(ownDomain, otherDomain)
				round(d)
				if err := d.client.Edit(t.Context(), nodeName, func(n *corev1.Node) {
					n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: theirs, Status: corev1.ConditionFalse, Reason: "KernelHasNoDeadlock"})
				}); err != nil {
					t.Fatal(err)
				}
				d.wantCustoms(t, "at first", theirs, otherDomain, ownDomain)
				d = restart(t, d)
				d.wantPublished(ownDomain)
				round(d)
				d.wantCustoms(t, "with one check less", theirs, ownDomain)
				d.wantPublished()
				round(d)
				d.wantCustoms(t, "without checks", theirs)
				if left := d.published.types(); len(left) > 0 {
					t.Errorf("%v are kept as published, want none", left)
				}
			})
		})
	}
}

// The folder of checks is late after a restart of the agent.
func TestConditionsStayUntilTheirChecksAreKnown(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		round := func() {
			t.Helper()
			if err := d.once(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
		}
		d.wantPublished(ownDomain, otherDomain)
		round()
		if err := d.client.Edit(t.Context(), nodeName, func(n *corev1.Node) {
			n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: theirs, Status: corev1.ConditionFalse, Reason: "KernelHasNoDeadlock"})
		}); err != nil {
			t.Fatal(err)
		}
		d.client.Forget()
		d = d.again(t, "one")
		d.o.Facts = checked{Facts: d.o.Facts, unread: true}
		for range 3 {
			round()
			time.Sleep(time.Hour)
		}
		d.wantCustoms(t, "before the checks are known", theirs, otherDomain, ownDomain)
		d.wantPublished()
		round()
		d.wantCustoms(t, "without checks", theirs)
	})
}

func TestFailedRemovalsAreRepeated(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		d.wantPublished(otherDomain)
		if err := d.once(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		d.client.Forget()
		d = d.again(t, "one")
		d.wantPublished()
		d.client.Inject(controlplanetest.UpdateConditions, controlplanetest.Fault{Err: controlplane.ErrConflict})
		d.start(t)
		d.wantCustoms(t, "while the server refuses", otherDomain)
		d.client.Heal()
		d.Changed()
		synctest.Wait()
		d.wantCustoms(t, "once it does not")
	})
}

func TestOnAKubeletsNodeOnlyTypesOfHostlersDomainArePublished(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		d.wantPublished(otherDomain)
		if err := d.once(t.Context(), nil); err != nil { // as the Node's owner
			t.Fatal(err)
		}
		if err := d.client.Edit(t.Context(), nodeName, func(n *corev1.Node) { n.Status.NodeInfo.KubeletVersion = "v1.36.3" }); err != nil {
			t.Fatal(err)
		}
		d.wantCustoms(t, "at first", otherDomain)
		d = d.again(t, "one")
		d.beside()
		d.wantPublished(otherDomain, ownDomain)
		if err := d.once(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		d.wantCustoms(t, "on a kubelet's Node", ownDomain)
		if n, _, _, _ := d.Current(); len(n.Status.Conditions) != 8 {
			t.Errorf("Current() = %v, want all of them to be seen on the host", n.Status.Conditions)
		}
		d.wantPublished()
		if err := d.once(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		d.wantCustoms(t, "without checks")
	})
}
