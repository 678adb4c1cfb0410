package shutdown_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	goruntime "runtime"
	"sync"
	"testing"
	"time"

	"hostler.io/hostler/runtime/runtimetest"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/shutdown/journal"
)

// The race detector finds reads of the guard that race with writes of the drain.
func TestAServiceStopInTheMomentInWhichACancelledDrainEnds(t *testing.T) {
	for range 100 {
		onHost(t, func(t *testing.T, r *rig) {
			r.pod("web", 0, runtimetest.ContainerSpec{EndsAfter: 2 * time.Second})
			r.start()
			r.logind.shutdown("reboot")
			time.Sleep(time.Second)
			r.logind.cancel()
			time.Sleep(time.Second)
			for range rand.N(30) {
				goruntime.Gosched() // until the drain is about to end
			}
			record, err := r.guard.Drain(t.Context(), journal.TriggerServiceStop)
			if err != nil || len(record.Pods) > 1 {
				t.Errorf("Drain() = %+v, %v, want what became of web", record, err)
			}
			r.expect(shutdown.Released, 0)
		})
	}
}

func TestManyCallTheGuardWhileShutdownsComeAndGo(t *testing.T) {
	onHost(t, func(t *testing.T, r *rig) {
		r.start()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var calls sync.WaitGroup
		repeat := func(call func()) {
			calls.Go(func() {
				for ctx.Err() == nil {
					call()
					time.Sleep(rand.N(time.Second))
				}
			})
		}
		pods := 0
		repeat(func() {
			pods++
			r.pod(fmt.Sprint("web", pods), 0, runtimetest.ContainerSpec{EndsAfter: rand.N(2 * time.Second)})
		})
		repeat(func() { r.guard.Observe(r.running()) })
		repeat(func() { _ = r.guard.Status() })
		repeat(func() { _ = r.guard.Refusal(ctx) })
		repeat(func() { _, _ = r.guard.Plan(ctx) })
		repeat(func() { r.guard.EndManualDrain(ctx) })
		repeat(func() {
			ctx, cancel := context.WithTimeout(ctx, rand.N(2*time.Second))
			defer cancel()
			_, _ = r.guard.Drain(ctx, journal.TriggerManualAll)
		})
		repeat(func() {
			r.logind.shutdown("reboot")
			time.Sleep(rand.N(3 * time.Second))
			r.logind.cancel()
		})
		calls.Wait()
		time.Sleep(time.Minute)
		r.expect(shutdown.Armed, 1)
		if got := r.guard.Status(); got.ManualDrain != nil || got.Current != nil {
			t.Errorf("Status() = %+v, want no drain in it", got)
		}
	})
}

func TestCallsBeforeAndAfterRunEndWithTheirContext(t *testing.T) {
	onHost(t, func(t *testing.T, r *rig) {
		r.usual()
		expect := func(when string) {
			t.Helper()
			began := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			r.guard.EndManualDrain(ctx)
			if err := r.guard.Refusal(ctx); err == nil {
				t.Errorf("Refusal() %s = nil, want the reason why the owner is unknown", when)
			}
			if _, err := r.guard.Drain(ctx, journal.TriggerServiceStop); err == nil {
				t.Errorf("Drain() %s = nil, want why nobody drains", when)
			}
			if took := time.Since(began); took != time.Second {
				t.Errorf("the calls %s took %v, want as long as their context lasts", when, took)
			}
		}
		r.build()
		expect("before Run")
		r.start()
		r.logind.shutdown("reboot")
		time.Sleep(time.Second)
		r.stop()
		expect("after Run")
	})
}
