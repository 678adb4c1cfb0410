package report

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/status"
)

var otherMachine = controlplane.Identity{MachineID: "another", SystemUUID: "OTHER"}

// registerOther registers another machine under this one's name, cordoned and with a label of
// another client. Its Lease is renewed until dies is called.
func (d *desk) registerOther(t *testing.T) (dies func()) {
	t.Helper()
	node := bare()
	node.Status.NodeInfo = corev1.NodeSystemInfo{MachineID: otherMachine.MachineID, SystemUUID: otherMachine.SystemUUID}
	if _, err := d.client.Register(t.Context(), node, controlplane.RegisterOptions{Takeover: true}); err != nil {
		t.Fatal(err)
	}
	d.edit(t, func(n *corev1.Node) { n.Labels, n.Spec.Unschedulable = map[string]string{"theirs": "1"}, true })
	keeper, err := controlplane.NewLeaseKeeper(d.client, controlplane.LeasePolicy{Node: nodeName, Holder: otherMachine, Duration: leaseDuration, Interval: leaseInterval}, discard())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() { _ = keeper.Run(ctx) })
	dies = sync.OnceFunc(func() { cancel(); done.Wait() })
	t.Cleanup(dies)
	synctest.Wait()
	return dies
}

// machineOf returns the machine ID of the stored Node.
func (d *desk) machineOf(t *testing.T) string {
	t.Helper()
	return controlplane.IdentityOf(d.stored(t)).MachineID
}

func TestADeadMachineIsReplacedOnceItWasWatched(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		d.registerOther(t)()
		d.o.Watch = controlplane.NewLeaseWatch(nil)
		before, started := d.stored(t).UID, time.Now()
		d.start(t)
		for range 3 {
			s := d.NodeState()
			if !strings.Contains(s.Waits, "another") || !strings.Contains(s.Waits, "before "+started.Add(leaseDuration).UTC().Format(time.RFC3339)) || d.machineOf(t) != "another" {
				t.Errorf("NodeState() = %+v, the Node is %s's, want it said which machine is watched and until when", s, d.machineOf(t))
			}
			if _, _, connected, err := d.Current(); !connected || err != nil {
				t.Errorf("Current() = %v, %v, want no failure", connected, err)
			}
			time.Sleep(13 * time.Second)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		n := d.stored(t)
		if n.UID == before || d.machineOf(t) != d.machine.MachineID || ready(n).Status != corev1.ConditionTrue || n.Labels["theirs"] != "" {
			t.Errorf("after %v the Node is %+v, want it replaced by this machine's", leaseDuration, n)
		}
		if reported := d.events("NodeReplaced"); len(reported) != 1 || !strings.Contains(reported[0], "machine ID another") || !strings.Contains(reported[0], "`hostler uncordon`") {
			t.Errorf("Events = %q, want the replacement reported once, with the cordon that stays", reported)
		}
		if d.log.Count("watching whether its lease") != 1 || d.log.Count("took over node from another machine") != 1 {
			t.Errorf("log = %s, want the wait and its end reported once", d.log)
		}
		if s := d.NodeState(); s.Waits != "" || len(s.Drift) != 1 || s.Drift[0].Fix != "hostler uncordon" {
			t.Errorf("NodeState() = %+v, want the cordon, and no wait", s)
		}
		d.edit(t, func(n *corev1.Node) { n.Spec.Unschedulable = false })
		time.Sleep(2 * d.o.Rewrite)
		synctest.Wait()
		if s := d.NodeState(); len(s.Drift) != 0 {
			t.Errorf("NodeState() of a Node that was uncordoned = %+v, want nothing left", s)
		}
	})
}

func TestAMachineThatIsAliveIsNotReplaced(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		dies := d.registerOther(t)
		d.o.Watch = controlplane.NewLeaseWatch(nil)
		d.start(t)
		time.Sleep(time.Hour)
		synctest.Wait()
		var identity *controlplane.IdentityError
		_, _, _, err := d.Current()
		if !errors.As(err, &identity) || identity.Watching() || d.NodeState().Waits != "" || d.machineOf(t) != "another" {
			t.Errorf("Current() = %v, NodeState() %+v, the Node is %s's, want it refused for the machine that lives", err, d.NodeState(), d.machineOf(t))
		}
		dies()
		time.Sleep(leaseDuration + 2*d.o.Update)
		synctest.Wait()
		if d.machineOf(t) != d.machine.MachineID {
			t.Errorf("once the other has died the Node is %s's, want this machine's", d.machineOf(t))
		}
	})
}

func TestATakenOverNodeIsNotWrittenUntilItsOwnerIsDead(t *testing.T) {
	for name, c := range map[string]struct{ keeps, watched, takeover bool }{
		"it is a new one":                                 {},
		"it is the same one":                              {keeps: true},
		"it is the same one, and watched":                 {keeps: true, watched: true},
		"both were to take it from the living, a new one": {takeover: true, watched: true},
		"both were to take it from the living, the same":  {takeover: true, keeps: true},
		"both were to take it from the living, and watch": {takeover: true, keeps: true, watched: true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, d *desk) {
				if c.keeps {
					d.client.KeepNodes()
				}
				d.o.Watch, d.o.Takeover = controlplane.NewLeaseWatch(nil), c.takeover
				d.start(t)
				if c.watched {
					d.watch(t)
				}
				dies := d.registerOther(t)
				time.Sleep(time.Hour)
				synctest.Wait()
				var identity *controlplane.IdentityError
				if _, _, _, err := d.Current(); !errors.As(err, &identity) || !identity.Renewed || d.machineOf(t) != "another" {
					t.Errorf("Current() = %v, the Node is %s's, want it left to the machine that lives", err, d.machineOf(t))
				}
				if n := d.log.Count("another machine took over the node") + d.log.Count("node was deleted"); n != 1 {
					t.Errorf("the loss was reported %d times, want once: %s", n, d.log)
				}
				dies()
				time.Sleep(leaseDuration + 2*d.o.Update)
				synctest.Wait()
				if n := d.stored(t); d.machineOf(t) != d.machine.MachineID || ready(n).Status != corev1.ConditionTrue || n.UID != d.named[len(d.named)-1] {
					t.Errorf("once the other has died the Node is %+v, and the lease's owners %v, want it this machine's again", n, d.named)
				}
			})
		})
	}
}

func TestRemainsOfADeadMachineAreReportedUntilFixed(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		d.registerOther(t)()
		d.client.KeepNodes()
		d.o.Takeover = true
		before := d.stored(t).UID
		d.start(t)
		d.watch(t)
		if n := d.stored(t); n.UID != before || d.machineOf(t) != d.machine.MachineID {
			t.Errorf("the Node is %+v, want it taken over as it is", n)
		}
		if reported := d.events("NodeTakenOver"); len(reported) != 1 || !strings.Contains(reported[0], "labels theirs") || !strings.Contains(reported[0], "`kubectl delete node node-a`") || !strings.Contains(reported[0], "as set by node.takeover") {
			t.Errorf("Events = %q, want what remains, and the fix", reported)
		}
		wantDrift := func(when string, d *desk) {
			t.Helper()
			s := d.NodeState()
			if len(s.Drift) != 2 || !strings.Contains(s.Drift[0].Message, "labels theirs") || s.Drift[0].Fix != "kubectl delete node node-a" || s.Drift[1].Fix != "hostler uncordon" {
				t.Errorf("%s: NodeState() = %+v, want what remains", when, s)
			}
		}
		wantDrift("after the takeover", d)
		next := d.again(t, "two")
		if err := next.once(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		wantDrift("after a restart", next)
		if reported := next.events("NodeTakenOver"); len(reported) != 0 {
			t.Errorf("Events after a restart = %q, want it no news", reported)
		}
		if err := d.client.Leave(t.Context(), nodeName, controlplane.Identity{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(d.o.Update)
		synctest.Wait()
		if n, s := d.stored(t), d.NodeState(); n.UID == before || len(s.Drift) != 0 || n.Labels["theirs"] != "" {
			t.Errorf("once somebody deleted it the Node is %+v, NodeState() %+v, want it registered again, and nothing left", n, s)
		}
	})
}

func TestAnAdoptedNodeAlsoWaitsForTheOtherMachine(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		d.registerOther(t)()
		before, lease := d.stored(t).UID, "not known yet"
		d.o.Watch, d.o.AdoptOnly, d.o.Waits = controlplane.NewLeaseWatch(nil), "nobody may", func(why string) { lease = why }
		d.start(t)
		time.Sleep(leaseDuration - time.Second)
		if d.machineOf(t) != "another" || lease == "" || !strings.Contains(d.NodeState().Waits, "does not renew its lease before") {
			t.Errorf("the Node is %s's, NodeState() %+v, the lease waits for %q, want both to wait", d.machineOf(t), d.NodeState(), lease)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if d.machineOf(t) != d.machine.MachineID || d.stored(t).UID != before || lease != "" || d.NodeState().Waits != "" {
			t.Errorf("the Node is %s's, NodeState() %+v, the lease waits for %q, want it adopted, and nothing waited for", d.machineOf(t), d.NodeState(), lease)
		}
	})
}

func TestClonesAreReportedOnceAndUntilTheyAreGone(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		var twin atomic.Pointer[controlplane.Clone]
		d.o.Twin = twin.Load
		set := func(t *testing.T, clone *controlplane.Clone, named string) {
			t.Helper()
			twin.Store(clone)
			d.edit(t, func(n *corev1.Node) {
				delete(n.Annotations, controlplane.AnnotationSameMachine)
				if named != "" {
					n.Annotations[controlplane.AnnotationSameMachine] = named
				}
			})
			time.Sleep(5 * d.o.Update)
			synctest.Wait()
		}
		d.configure(func(o *status.Options) { o.Taints = []corev1.Taint{{Key: "x", Effect: corev1.TaintEffectNoExecute}} })
		d.start(t)
		d.watch(t)
		set(t, &controlplane.Clone{Node: nodeName, Instance: "boot/1/x"}, "node-b,\x1b[2J, "+nodeName)
		reported := d.events("MachineCloned")
		if len(reported) != 2 || !strings.Contains(reported[0], "boot/1/x") || !strings.Contains(reported[1], "node-b") || !strings.Contains(reported[1], "systemd-machine-id-setup") {
			t.Errorf("Events = %q, want each clone reported once, with the fix", reported)
		}
		if s := d.NodeState(); len(s.Drift) != 2 || !strings.Contains(s.Drift[1].Fix, "rm -f /etc/machine-id") {
			t.Errorf("NodeState() = %+v, want both clones", s)
		}
		set(t, nil, "")
		if s := d.NodeState(); len(s.Drift) != 0 {
			t.Errorf("NodeState() = %+v, want nothing once they are gone", s)
		}
		set(t, nil, "node-b")
		counts := map[int32]int{} // repeated Events are counted
		for _, e := range d.o.Recorder.Queued() {
			if e.Reason == "MachineCloned" {
				counts[e.Count]++
			}
		}
		if counts[1] != 1 || counts[2] != 1 {
			t.Errorf("Events by their counts = %v, want a clone that has returned reported again", counts)
		}
	})
}
