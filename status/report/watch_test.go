package report

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controlplanetest"
	"hostler.io/hostler/status"
)

// watch follows the stored Node until the bubble ends.
func (d *desk) watch(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() { _ = d.Watch(ctx, d.client, func(error) {}) })
	t.Cleanup(func() { cancel(); done.Wait() })
	synctest.Wait()
}

func TestChangesOfOthersAreReverted(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		d.configure(func(o *status.Options) {
			o.Labels = map[string]string{"rack": "r1", "row": "1"}
			o.Annotations = map[string]string{"note": "ours"}
		})
		d.start(t)
		d.watch(t)
		for _, change := range []func(*corev1.Node){
			func(n *corev1.Node) { n.Labels["rack"] = "theirs" },
			func(n *corev1.Node) { delete(n.Labels, "row") },
			func(n *corev1.Node) { n.Annotations["note"] = "theirs" },
			func(n *corev1.Node) { delete(n.Annotations, controlplane.AnnotationOwned) },
		} {
			d.edit(t, change)
			synctest.Wait()
			n := d.stored(t)
			if n.Labels["rack"] != "r1" || n.Labels["row"] != "1" || n.Annotations["note"] != "ours" || n.Annotations[controlplane.AnnotationOwned] == "" {
				t.Errorf("the Node has labels %v and annotations %v, want hostler's set again at once", n.Labels, n.Annotations)
			}
			time.Sleep(time.Second)
		}
		want := []string{
			"NodeRestored: restored settings that another client changed: label rack",
			"NodeRestored: restored settings that another client changed: label row",
			"NodeRestored: restored settings that another client changed: annotation note",
			"NodeRestored: restored settings that another client changed: annotation hostler.io/owned",
		}
		if got := d.events("NodeRestored"); !slices.Equal(got, want) {
			t.Errorf("Events = %q, want %q", got, want)
		}
		if d.log.Count("node registered") != 1 || len(d.named) != 1 {
			t.Errorf("log = %s, want one registration", d.log)
		}
		d.edit(t, func(n *corev1.Node) { n.Labels["theirs"], n.Annotations["theirs"] = "x", "x" })
		time.Sleep(time.Hour)
		if n := d.stored(t); n.Labels["theirs"] != "x" || n.Annotations["theirs"] != "x" {
			t.Errorf("the Node has labels %v and annotations %v, want those of others kept", n.Labels, n.Annotations)
		}
	})
}

// opponent changes the Node whenever it does not have its content.
func (d *desk) opponent(t *testing.T, content func(*corev1.Node) bool, change func(*corev1.Node)) {
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	seen := make(chan *corev1.Node)
	done.Go(func() { _ = d.client.WatchNode(ctx, nodeName, seen) })
	done.Go(func() {
		for {
			select {
			case n := <-seen:
				if n != nil && !content(n) {
					_ = d.client.Edit(ctx, nodeName, change)
				}
			case <-ctx.Done():
				return
			}
		}
	})
	t.Cleanup(func() { cancel(); done.Wait() })
}

// A control plane sets the pace of the watch, but not of the rounds.
func TestAControlPlaneDoesNotSetThePaceOfRounds(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		var taints atomic.Int64
		d.o.Taints = func([]corev1.Taint) { taints.Add(1) }
		d.start(t)
		d.watch(t)
		time.Sleep(2 * time.Second)
		reads := d.client.Calls(controlplanetest.Node)
		flip := func() {
			d.edit(t, func(n *corev1.Node) { n.Spec.Unschedulable = !n.Spec.Unschedulable })
			synctest.Wait()
		}
		if flip(); d.client.Calls(controlplanetest.Node) != reads+1 {
			t.Errorf("read the Node %d times after a change, want it at once", d.client.Calls(controlplanetest.Node)-reads)
		}
		for range 100 {
			flip()
			time.Sleep(50 * time.Millisecond)
		}
		if got := d.client.Calls(controlplanetest.Node) - reads; got > 20 {
			t.Errorf("read the Node %d times in 5 seconds, want 10 times, and then at most once a second", got)
		}
		time.Sleep(time.Minute)
		taints.Store(0)
		for i := range 100 {
			d.edit(t, func(n *corev1.Node) {
				n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute, Value: fmt.Sprint(i)}}
			})
			time.Sleep(50 * time.Millisecond)
		}
		if n := taints.Load(); n == 0 || n > 20 {
			t.Errorf("reported taints %d times in 5 seconds, want 10 times, and then at most once a second", n)
		}
	})
}

func TestChangesOfOthersAreNotRevertedInATightLoop(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		d.configure(func(o *status.Options) { o.Labels = map[string]string{"rack": "r1"} })
		d.start(t)
		d.watch(t)
		d.opponent(t, func(n *corev1.Node) bool { return n.Labels["rack"] == "theirs" }, func(n *corev1.Node) { n.Labels["rack"] = "theirs" })
		time.Sleep(time.Hour)
		synctest.Wait()
		registered, reads := d.client.Calls(controlplanetest.Register), d.client.Calls(controlplanetest.Node)
		if least, most := 10, 14; registered < least || registered > most {
			t.Errorf("registered %d times within an hour, want between %d and %d: once, and then once in a report interval", registered, least, most)
		}
		if reads > 2*registered+1 {
			t.Errorf("read the Node %d times, want one for each time that it was changed", reads)
		}
		if reported := d.events("NodeRestored"); len(reported) != 1 || d.log.Count("restored settings") != 1 {
			t.Errorf("Events = %q, log %s, want it reported once", reported, d.log)
		}
	})
}

func TestACordonOnTheControlPlaneIsHonouredAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		d.start(t)
		d.watch(t)
		if _, err := d.decide(t, true); err != nil {
			t.Fatal(err)
		}
		for _, want := range []bool{false, true} {
			d.edit(t, func(n *corev1.Node) { n.Spec.Unschedulable = want })
			synctest.Wait()
			d.wantCordoned(t, "changed by somebody else,", want)
			if n, _, _, _ := d.Current(); n.Spec.Unschedulable != want {
				t.Errorf("status shows unschedulable %v, want %v", n.Spec.Unschedulable, want)
			}
			if d.Decided() != nil {
				t.Errorf("Decided() = %+v, want that alice's word has given way", d.Decided())
			}
		}
		want := []string{"NodeSchedulable: uncordoned on the control plane", "NodeNotSchedulable: cordoned on the control plane"}
		if got := d.events("NodeSchedulable", "NodeNotSchedulable"); !slices.Equal(got, want) {
			t.Errorf("Events = %q, want %q", got, want)
		}
	})
}

// The watch may report an old state only after an operator's decision.
func TestADecisionIsNotUndoneByAnOldWatchEvent(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		d.start(t)
		old := d.stored(t)
		if _, err := d.decide(t, true); err != nil {
			t.Fatal(err)
		}
		d.watched <- old
		synctest.Wait()
		d.wantCordoned(t, "after old news,", true)
		if by := d.Decided(); by == nil || by.By != "alice" {
			t.Errorf("Decided() = %+v, want alice's word", by)
		}
		if reported := d.events("NodeSchedulable"); len(reported) > 0 {
			t.Errorf("Events = %q, want none", reported)
		}
	})
}

func TestADeletedNodeIsRegisteredAgainWithinAnInterval(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		d.start(t)
		d.watch(t)
		first := d.stored(t).UID
		if err := d.client.Leave(t.Context(), nodeName, controlplane.Identity{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		node := d.stored(t)
		if node == nil || node.UID == first || ready(node).Status != corev1.ConditionTrue || len(d.named) != 2 {
			t.Fatalf("the Node = %v, and the lease's owners = %v, want it there again at once", node, d.named)
		}
		d.client.Create(bare()) // replaces the Node
		synctest.Wait()
		if n := d.stored(t); n.Labels[corev1.LabelHostname] != nodeName || ready(n).Status != corev1.ConditionTrue || len(d.named) != 3 {
			t.Errorf("a Node that somebody else created in its place = %+v, want it adopted", n)
		}
		if reported := d.events("NodeGone"); len(reported) == 0 {
			t.Error("no Event of the loss")
		}
	})
}

// lose changes a Node like the node lifecycle controller of a cluster, when it is unreachable.
func lose(n *corev1.Node) {
	for i := range n.Status.Conditions {
		switch c := &n.Status.Conditions[i]; c.Type {
		case corev1.NodeReady, corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure:
			c.Status, c.Reason, c.Message = corev1.ConditionUnknown, "NodeStatusUnknown", "Kubelet stopped posting node status."
		}
	}
}

// Readers of the Node use the time of that change, as with a kubelet.
func TestCorrectedConditionsHaveANewTransitionTime(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		d.start(t)
		d.watch(t)
		time.Sleep(61 * time.Minute) // the last write was a minute ago
		before := ready(d.stored(t)).LastTransitionTime
		counted := len(d.counted)
		d.client.Inject(controlplanetest.UpdateStatus, controlplanetest.Fault{Err: controlplane.ErrUnavailable, Times: 1})
		d.edit(t, lose)
		synctest.Wait()
		d.edit(t, func(n *corev1.Node) { delete(n.Labels, corev1.LabelHostname) }) // the Node is read before its status is written again
		time.Sleep(2 * d.o.Update)
		synctest.Wait()
		back := ready(d.stored(t)).LastTransitionTime
		if age := back.Sub(before.Time); age < 59*time.Minute || ready(d.stored(t)).Status != corev1.ConditionTrue {
			t.Errorf("the stored Ready is %+v, %v after it was first so, want it of now", ready(d.stored(t)), age)
		}
		if now, _, _, _ := d.Current(); ready(now).LastTransitionTime != back {
			t.Errorf("the host says that it is Ready since %v, want %v as stored", ready(now).LastTransitionTime, back)
		}
		var kinds []string
		for _, change := range d.counted[counted:] {
			kind, _, _ := strings.Cut(change, "=")
			kinds = append(kinds, kind)
		}
		if !slices.Equal(kinds, []string{"MemoryPressure", "DiskPressure", "PIDPressure", "Ready"}) {
			t.Errorf("counted %q, want each of the four once", d.counted[counted:])
		}
		if got := d.events("NodeReady"); len(got) != 2 || !strings.Contains(got[1], "was Unknown") {
			t.Errorf("Events = %q, want a second one that it is Ready", got)
		}
		if n := d.log.Count("type=Ready"); n != 1 {
			t.Errorf("log = %s, want that the host is Ready once", d.log)
		}
		time.Sleep(time.Hour)
		if now := ready(d.stored(t)).LastTransitionTime; now != back {
			t.Errorf("an hour later the stored Ready has changed at %v, want %v", now, back)
		}
	})
}

// The agent has started long before it can reach the control plane.
func TestAHostThatWasLostIsReadySinceItsFirstWrite(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		if err := d.once(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		d.edit(t, lose)
		d.edit(t, func(n *corev1.Node) { n.Status.NodeInfo.BootID = "11111111-2222-3333-4444-555555555555" })

		next := newDesk(t)
		next.client, next.o.Client = d.client, d.client
		next.client.Inject(controlplanetest.Any, controlplanetest.Fault{Err: controlplane.ErrUnavailable})
		next.start(t)
		time.Sleep(10 * time.Minute)
		next.client.Heal()
		healed := time.Now()
		time.Sleep(time.Minute)
		synctest.Wait()
		back := ready(next.stored(t))
		if back.Status != corev1.ConditionTrue || back.LastTransitionTime.Time.Before(healed) {
			t.Errorf("the stored Ready is %+v, want it True, and not before %v", back, healed)
		}
		if got := next.events("NodeReady"); len(got) != 1 {
			t.Errorf("Events = %q, want one", got)
		}
		time.Sleep(time.Hour)
		if now := ready(next.stored(t)).LastTransitionTime; now != back.LastTransitionTime {
			t.Errorf("an hour later the stored Ready has changed at %v, want %v", now, back.LastTransitionTime)
		}
	})
}

// The write comes before the watch has seen the change.
func TestAHostThatWasLostInAnOutageIsReadySinceItsReturn(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		d.start(t)
		time.Sleep(time.Minute)
		d.client.Inject(controlplanetest.Any, controlplanetest.Fault{Err: controlplane.ErrUnavailable})
		time.Sleep(3 * time.Minute)
		d.edit(t, lose)
		time.Sleep(3 * time.Minute)
		d.client.Heal()
		healed := time.Now()
		time.Sleep(time.Minute)
		synctest.Wait()
		if back := ready(d.stored(t)); back.Status != corev1.ConditionTrue || back.LastTransitionTime.Time.Before(healed) {
			t.Errorf("the stored Ready is %+v, want it True, and not before %v", back, healed)
		}
	})
}

// The conditions must be written again by the host, even if nothing has changed on it and its Lease
// is renewed already.
func TestAHostThatWasMarkedLostWritesItsStatus(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		d.start(t)
		d.watch(t)
		time.Sleep(time.Minute)
		for _, wait := range []time.Duration{0, d.o.Update} { // the second follows immediately
			d.edit(t, lose)
			time.Sleep(wait)
			synctest.Wait()
			for _, c := range d.stored(t).Status.Conditions {
				if c.Reason == "NodeStatusUnknown" {
					t.Errorf("within %v of the lease's expiry the stored %s is %+v, want the real status", wait, c.Type, c)
				}
			}
		}
		d.after(t, time.Minute, "a minute later", 1, 3)
		if d.log.Count("marked the host as lost") != 2 {
			t.Errorf("log = %s, want a line each time", d.log)
		}
	})
}

func TestUnknownConditionsAreNotRewrittenInATightLoop(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		d.start(t)
		d.watch(t)
		d.opponent(t, func(n *corev1.Node) bool { return ready(n).Status == corev1.ConditionUnknown }, lose)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if n := d.client.Calls(controlplanetest.UpdateStatus); n < 50 || n > 62 {
			t.Errorf("written %d times within 10 minutes, want once in an update interval", n)
		}
	})
}

func TestAReadThatFailedOnceIsForgotten(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		d.start(t)
		d.watch(t)
		d.client.Inject(controlplanetest.Node, controlplanetest.Fault{Err: controlplane.ErrUnavailable, Times: 1})
		d.edit(t, func(n *corev1.Node) { n.Spec.Unschedulable = true })
		synctest.Wait()
		if _, _, connected, err := d.Current(); connected || err == nil {
			t.Errorf("Current() = %v, %v, want the failure reported", connected, err)
		}
		time.Sleep(d.o.Update)
		synctest.Wait()
		if n, _, connected, err := d.Current(); !connected || err != nil || !n.Spec.Unschedulable {
			t.Errorf("Current() = %v, %v, unschedulable %v, want it read in the next round", connected, err, n.Spec.Unschedulable)
		}
	})
}

func TestNothingIsReadWithoutAChange(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		d.start(t)
		d.watch(t)
		reads := d.client.Calls(controlplanetest.Node)
		d.edit(t, func(n *corev1.Node) {
			n.Annotations["theirs"] = "x"
			n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: "Theirs", Status: corev1.ConditionTrue})
		})
		d.after(t, time.Hour, "an hour without a change", 1, 13)
		if got := d.client.Calls(controlplanetest.Node); got != reads {
			t.Errorf("the Node was read %d times, want never", got-reads)
		}
		if n := d.client.Calls(controlplanetest.WatchNode); n != 1 {
			t.Errorf("%d watches, want one", n)
		}
	})
}

func TestALostWatchIsRestarted(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		d.start(t)
		d.watch(t)
		d.client.Inject(controlplanetest.WatchNode, controlplanetest.Fault{Err: controlplane.ErrUnavailable})
		time.Sleep(time.Hour)
		if n := d.client.Calls(controlplanetest.WatchNode); n < 350 || n > 550 {
			t.Errorf("%d watches within an hour, want one in about 8 s", n)
		}
		d.edit(t, func(n *corev1.Node) { n.Spec.Unschedulable = true })
		d.client.Heal()
		time.Sleep(d.o.Update)
		synctest.Wait()
		if n, _, _, _ := d.Current(); !n.Spec.Unschedulable {
			t.Error("what changed meanwhile is not seen")
		}
		if d.log.Count("at the next write only") != 1 || d.log.Count("watch of the node restored") != 1 {
			t.Errorf("log = %s, want the loss and its end reported once", d.log)
		}
	})
}

func TestAWatchKeepsARequestedPause(t *testing.T) {
	for name, c := range map[string]struct{ asked, least, most time.Duration }{
		"later than it would by itself": {time.Minute, time.Minute, 72 * time.Second},
		"at once":                       {time.Nanosecond, 200 * time.Millisecond, 10 * time.Second},
		"in a day, which is too long":   {24 * time.Hour, 5 * time.Minute, 6 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, d *desk) {
				d.start(t)
				d.client.Inject(controlplanetest.WatchNode, controlplanetest.Fault{Err: &controlplane.BusyError{After: c.asked, Err: controlplane.ErrUnavailable}, Times: 1})
				d.watch(t)
				time.Sleep(c.least - time.Nanosecond)
				synctest.Wait()
				if n := d.client.Calls(controlplanetest.WatchNode); n != 1 {
					t.Errorf("%d watches before %v, want 1", n, c.least)
				}
				time.Sleep(c.most - c.least + time.Millisecond)
				synctest.Wait()
				if n := d.client.Calls(controlplanetest.WatchNode); n != 2 {
					t.Errorf("%d watches by %v, want 2", n, c.most)
				}
			})
		})
	}
}

// The Event of the decision was recorded when it was made.
func TestALateDecisionIsNotReportedAsAnotherClients(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		d.start(t)
		d.watch(t)
		d.client.Inject(controlplanetest.Node, controlplanetest.Fault{Err: controlplane.ErrUnavailable}) // the fake returns this for a cordon
		if _, err := d.decide(t, true); err == nil {
			t.Error("Cordon() = nil, want that the answer was lost")
		}
		d.client.Heal()
		time.Sleep(time.Minute)
		synctest.Wait()
		d.wantCordoned(t, "a minute later,", true)
		if by := d.Decided(); by == nil || !by.Delivered {
			t.Errorf("Decided() = %+v, want alice's word delivered", by)
		}
		if reported := d.events("NodeNotSchedulable"); len(reported) > 0 {
			t.Errorf("Events = %q, want none of the control plane", reported)
		}
	})
}

func TestARequestedLeaseDurationIsReportedAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		var asked []string
		d.o.Requested = func(leaseDuration string) { asked = append(asked, leaseDuration) }
		d.start(t)
		d.watch(t)
		for _, want := range []string{"2m", "3m", ""} {
			d.edit(t, func(n *corev1.Node) {
				delete(n.Annotations, controlplane.AnnotationLeaseDuration)
				if want != "" {
					n.Annotations[controlplane.AnnotationLeaseDuration] = want
				}
			})
			synctest.Wait()
			if len(asked) == 0 || asked[len(asked)-1] != want {
				t.Errorf("asked = %q, want %q at once", asked, want)
			}
			time.Sleep(time.Second)
		}
		if d.log.Count("restored settings") != 0 {
			t.Errorf("log = %s, want the annotation left to those who set it", d.log)
		}
	})
}
