package report

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	goruntime "runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/shutdown"
)

// A cluster's node lifecycle controller changes taints, which the watch handles, while the status
// changes and is written. Run with -race.
func TestTheWatchAndTheStatusLoopShareNothing(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		d.o.Requested = func(string) { // takes time, in which the watch continues
			for range 5_000 {
				goruntime.Gosched()
			}
		}
		d.start(t)
		d.watch(t)
		const rounds = 100
		var others sync.WaitGroup
		others.Go(func() {
			for i := range 10 * rounds {
				d.edit(t, func(n *corev1.Node) {
					n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeMemoryPressure, Value: fmt.Sprint(i), Effect: corev1.TaintEffectNoSchedule}}
				})
				goruntime.Gosched() // else a single processor does all edits first
			}
		})
		others.Go(func() {
			for i := range rounds {
				state := []shutdown.State{shutdown.Armed, shutdown.Disarmed}[i%2]
				err := d.ReportShutdown(t.Context(), shutdown.Status{State: state, Reason: fmt.Sprint(i)})
				if err != nil && !errors.Is(err, controlplane.ErrConflict) { // the next round overwrites it
					t.Error(err)
				}
				_, _, _, _ = d.Current()
				_ = d.NodeState()
			}
		})
		others.Wait()
		if err := d.ReportShutdown(t.Context(), shutdown.Status{State: shutdown.Armed, Reason: "the last"}); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		node, _, connected, err := d.Current()
		if !connected || err != nil {
			t.Errorf("Current() = connected %v, %v, want no error", connected, err)
		}
		if stored := d.stored(t); len(node.Spec.Taints) != 1 || node.Spec.Taints[0] != stored.Spec.Taints[0] {
			t.Errorf("status shows the taints %v, want the stored ones %v", node.Spec.Taints, stored.Spec.Taints)
		}
	})
}

// Run with -race: users and other loops call the reporter while other clients change its Node.
func TestManyCallTheReporterWhileItsNodeChanges(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		d.o.Requested = func(string) { time.Sleep(rand.N(100 * time.Millisecond)) }
		d.start(t)
		d.watch(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var calls sync.WaitGroup
		repeat := func(call func()) {
			calls.Go(func() {
				for ctx.Err() == nil {
					call()
					time.Sleep(rand.N(2 * time.Second))
				}
			})
		}
		repeat(d.Changed)
		repeat(func() { _, _, _, _ = d.Current(); _, _ = d.Decided(), d.Left() })
		repeat(func() { _ = d.NodeState() })
		repeat(func() {
			_, _ = d.Cordon(ctx, Decision{Unschedulable: rand.N(2) == 0, By: "alice", At: time.Now()})
		})
		repeat(func() {
			_ = d.ReportShutdown(ctx, shutdown.Status{State: []shutdown.State{shutdown.Armed, shutdown.Disarmed}[rand.N(2)]})
		})
		repeat(func() {
			_ = d.Leave(ctx, "alice")
			time.Sleep(rand.N(5 * time.Second))
			_, _ = d.Return(ctx, "alice")
			time.Sleep(rand.N(20 * time.Second))
		})
		repeat(func() { // it may be deregistered
			_ = d.client.Edit(ctx, nodeName, func(n *corev1.Node) {
				n.Spec.Unschedulable = rand.N(2) == 0
				n.Labels = map[string]string{"turn": fmt.Sprint(rand.N(1000))}
			})
		})
		calls.Wait()

		if _, err := d.Return(t.Context(), "alice"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute) // until it is registered
		if _, err := d.Cordon(t.Context(), Decision{Unschedulable: true, By: "bob", At: time.Now()}); err != nil {
			t.Fatal(err)
		}
		if err := d.ReportShutdown(t.Context(), shutdown.Status{State: shutdown.Armed}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		stored := d.stored(t)
		if stored == nil || !stored.Spec.Unschedulable {
			t.Fatalf("the control plane has %+v, want the Node, cordoned", stored)
		}
		if node, _, connected, err := d.Current(); !connected || err != nil || !node.Spec.Unschedulable || node.UID != stored.UID {
			t.Errorf("Current() = %v, connected %t, %v, want what is stored", node, connected, err)
		}
	})
}
