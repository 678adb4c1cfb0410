package report

import (
	"errors"
	"fmt"
	goruntime "runtime"
	"sync"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/shutdown"
)

// A cluster's node lifecycle controller changes taints, which the watch takes in, while the
// status changes and is written. Run with -race.
func TestTheWatchAndTheStatusLoopShareNothing(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		d.o.Asked = func(string) { // takes a moment, in which the watch goes on
			for range 5_000 {
				goruntime.Gosched()
			}
		}
		d.start(t)
		d.watch(t)
		const rounds = 100
		stop := make(chan struct{})
		var others sync.WaitGroup
		others.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				d.edit(t, func(n *corev1.Node) {
					n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeMemoryPressure, Value: fmt.Sprint(i), Effect: corev1.TaintEffectNoSchedule}}
				})
			}
		})
		others.Go(func() {
			defer close(stop)
			for i := range rounds {
				state := []shutdown.State{shutdown.Armed, shutdown.Disarmed}[i%2]
				err := d.ReportShutdown(t.Context(), shutdown.Status{State: state, Reason: fmt.Sprint(i)})
				if err != nil && !errors.Is(err, controlplane.ErrConflict) { // which the next round writes over
					t.Error(err)
				}
				_, _, _, _ = d.Current()
				_ = d.Standing()
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
