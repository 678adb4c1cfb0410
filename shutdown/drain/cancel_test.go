package drain_test

import (
	"context"
	"testing"
	"time"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/runtimetest"
	"hostler.io/hostler/shutdown/drain"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/shutdown/plan"
)

func TestCancelEndsFurtherStops(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("web", 0, runtimetest.ContainerSpec{EndsAfter: 4 * time.Second})
		w.pod("slow", 0, runtimetest.ContainerSpec{EndsAfter: 8 * time.Second})
		w.pod("dns", plan.CriticalPriority)
		d := w.drain()
		time.AfterFunc(3*time.Second, d.Cancel)
		d.Run(t.Context())
		w.expectTook(time.Since(w.began), 5*time.Second) // two of them for calls in progress
		r := d.Record()
		w.expect(r, false, map[string]journal.Outcome{"web": journal.Stopped, "slow": journal.Left, "dns": journal.Skipped})
		if r.CancelledAt.IsZero() || !r.FinishedAt.IsZero() {
			t.Errorf("Run() recorded %+v, want it cancelled", r)
		}
		<-d.Idle()
		time.Sleep(time.Minute)
		if n := len(w.fake.Calls(runtimetest.StopPod)); n != 0 {
			t.Errorf("%d sandboxes were torn down after the cancellation, want none", n)
		}
		w.expectSignals("slow0", "TERM@0s")
	})
}

func TestAbandonDoesNotWait(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("slow", 0, runtimetest.ContainerSpec{IgnoresTERM: true})
		d := w.drain()
		time.AfterFunc(3*time.Second, d.Cancel)
		time.AfterFunc(4*time.Second, d.Abandon)
		d.Run(t.Context())
		w.expectTook(time.Since(w.began), 4*time.Second)
		<-d.Idle()
	})
}

func TestAnotherProcessGoesOn(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("done", 0)
		w.pod("slow", 0, runtimetest.ContainerSpec{EndsAfter: 8 * time.Second})
		w.pod("deaf", 0, runtimetest.ContainerSpec{IgnoresTERM: true, Labels: grace("12s")})
		w.pod("dns", plan.CriticalPriority, runtimetest.ContainerSpec{IgnoresTERM: true})
		ctx, kill := context.WithCancel(t.Context())
		d := w.drain()
		time.AfterFunc(6*time.Second, kill)
		d.Run(ctx)
		<-d.Idle()
		first := d.Record()
		if !first.FinishedAt.IsZero() || outcomes(first)["slow"] != "" || outcomes(first)["done"] != journal.Stopped {
			t.Fatalf("Run() recorded %+v, want it unfinished", first)
		}

		time.Sleep(time.Second)
		w.roster = &drain.Roster{Runtime: w.fake}
		w.options.Roster, w.options.Record, w.options.Start = w.roster, first, first.StartedAt
		r, _ := w.run(t.Context())
		w.expect(r, true, map[string]journal.Outcome{"done": journal.Stopped, "slow": journal.Stopped, "deaf": journal.Killed, "dns": journal.Killed})
		// No stop is requested twice, and the drain ends as if it had not been interrupted.
		w.expectSignals("done0", "TERM@0s")
		w.expectSignals("slow0", "TERM@0s")
		w.expectSignals("deaf0", "TERM@0s KILL@12s")
		w.expectSignals("dns0", "TERM@12s KILL@30s")
	})
}

func TestAnotherProcessFindsThatAllIsDone(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("gone", 0, runtimetest.ContainerSpec{State: runtime.Exited})
		w.options.Start = time.Now().Add(-time.Hour)
		w.options.Record = &journal.Record{StartedAt: w.options.Start, Pods: []journal.PodRecord{
			{Runtime: "fake", ID: "gone", Name: "gone", StartedAt: w.options.Start},
			{Runtime: "fake", ID: "removed", Name: "removed", StartedAt: w.options.Start},
		}}
		r, took := w.run(t.Context())
		w.expect(r, true, map[string]journal.Outcome{"gone": journal.Stopped, "removed": journal.Stopped})
		w.expectTook(took, 0)
	})
}

// A service stop follows the release of the lock. Containers that did not end in time must not get
// another grace period that delays the host.
func TestAContainerThatWasLeftRunningGetsNoSecondGrace(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("dstate", 0, runtimetest.ContainerSpec{Unkillable: true})
		w.pod("deaf", 0, runtimetest.ContainerSpec{IgnoresTERM: true})
		first, _ := w.run(t.Context())
		w.expect(first, false, map[string]journal.Outcome{"dstate": journal.Left, "deaf": journal.Killed})

		w.pod("late", 0, runtimetest.ContainerSpec{EndsAfter: time.Second})
		again := time.Now()
		w.options.Record, w.options.Start = first, again
		r, took := w.run(t.Context())
		w.expect(r, false, map[string]journal.Outcome{"dstate": journal.Left, "deaf": journal.Killed, "late": journal.Stopped})
		if took > 3*time.Second {
			t.Errorf("Run() took %v for what was left and a pod that ends in a second, want no second period", took)
		}
		w.fake.Exit("dstate0", 0)
	})
}

func TestACancellationKillsNoContainer(t *testing.T) {
	for _, at := range []time.Duration{time.Second, 10 * time.Second, 11 * time.Second, 11400 * time.Millisecond} {
		inWorld(t, func(t *testing.T, w *world) {
			w.pod("deaf", 0, runtimetest.ContainerSpec{IgnoresTERM: true, Labels: grace("12s")})
			d := w.drain()
			time.AfterFunc(at, d.Cancel)
			d.Run(t.Context())
			<-d.Idle()
			time.Sleep(time.Minute)
			w.expectSignals("deaf0", "TERM@0s")
		})
	}
}
