package shutdown_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"hostler.io/hostler/runtime/runtimetest"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/shutdown/plan"
)

func TestACancellationAtAnyMomentLeavesOneLock(t *testing.T) {
	onHost(t, func(t *testing.T, r *rig) {
		r.start()
		for i := range 50 {
			name := fmt.Sprint("round", i)
			r.pod(name+"web", 0, runtimetest.ContainerSpec{EndsAfter: 700 * time.Millisecond})
			r.pod(name+"dns", plan.CriticalPriority, runtimetest.ContainerSpec{EndsAfter: 500 * time.Millisecond})
			r.logind.shutdown("reboot")
			// Before the first stop, within each phase, between, after the release.
			time.Sleep(time.Duration(i) * 30 * time.Millisecond)
			r.logind.cancel()
			if i%3 == 0 {
				r.logind.shutdown("reboot") // and again at once
				r.logind.cancel()
			}
			time.Sleep(10 * time.Second)
			r.expect(shutdown.Armed, 1)
			if t.Failed() {
				t.Fatalf("round %d", i)
			}
			for _, p := range []string{name + "web", name + "dns"} {
				r.fake.TakePod(p)
			}
		}
	})
}

func TestACancellationIsSeenInTheMiddleOfADrain(t *testing.T) {
	onHost(t, func(t *testing.T, r *rig) {
		r.pod("web", 0, runtimetest.ContainerSpec{IgnoresTERM: true})
		r.pod("dns", plan.CriticalPriority, runtimetest.ContainerSpec{})
		r.start()
		r.logind.shutdown("reboot")
		time.Sleep(3 * time.Second)
		r.logind.cancel()
		time.Sleep(2 * time.Second) // for calls in flight, and no more
		r.expect(shutdown.Armed, 1)
		time.Sleep(time.Hour)
		r.expectSignals("web", "TERM@0s") // and no KILL
		r.expectSignals("dns", "")
		if got := r.guard.Status(); got.Current != nil || got.Last != nil {
			t.Errorf("Status() = %+v, want no shutdown in it", got)
		}
	})
}

// systemd 257 takes a delayed shutdown back without a word (`shutdown -c`).
func TestACancellationThatNobodyTellsIsNoticed(t *testing.T) {
	onHost(t, func(t *testing.T, r *rig) {
		r.pod("web", 0, runtimetest.ContainerSpec{IgnoresTERM: true})
		r.pod("dns", plan.CriticalPriority, runtimetest.ContainerSpec{})
		r.start()
		r.logind.shutdown("reboot")
		time.Sleep(3500 * time.Millisecond)
		r.logind.cancelSilently()
		time.Sleep(4 * time.Second)
		r.expect(shutdown.Armed, 1)
		time.Sleep(time.Hour)
		r.expectSignals("web", "TERM@0s") // and no KILL
		r.expectSignals("dns", "")
	})
}

// A kubelet that starts during a drain guards the next shutdown, not this one.
func TestACancellationThatNobodyTellsIsNoticedBesideAnotherOwner(t *testing.T) {
	onHost(t, func(t *testing.T, r *rig) {
		var kubelet atomic.Bool
		r.options.Delegated = func(context.Context) (string, bool) { return "kubelet", kubelet.Load() }
		r.pod("web", 0, runtimetest.ContainerSpec{IgnoresTERM: true})
		r.pod("dns", plan.CriticalPriority, runtimetest.ContainerSpec{})
		r.start()
		r.logind.shutdown("reboot")
		time.Sleep(3500 * time.Millisecond)
		kubelet.Store(true)
		r.logind.cancelSilently()
		time.Sleep(4 * time.Second)
		r.expect(shutdown.Delegated, 0)
		time.Sleep(time.Hour)
		r.expectSignals("web", "TERM@0s") // and no KILL
		r.expectSignals("dns", "")
	})
}

func TestACancellationThatNobodyTellsIsNoticedAfterTheRelease(t *testing.T) {
	onHost(t, func(t *testing.T, r *rig) {
		r.usual()
		r.start()
		r.logind.shutdown("reboot") // which somebody else delays, too
		time.Sleep(10 * time.Second)
		r.expect(shutdown.Released, 0)
		r.logind.cancelSilently()
		time.Sleep(31 * time.Second)
		r.expect(shutdown.Armed, 1)
	})
}

func TestAShutdownAnnouncedAnewWhileTheLastIsBeingCancelled(t *testing.T) {
	onHost(t, func(t *testing.T, r *rig) {
		r.pod("web", 0, runtimetest.ContainerSpec{EndsAfter: 5 * time.Second})
		r.pod("dns", plan.CriticalPriority, runtimetest.ContainerSpec{})
		r.start()
		r.logind.shutdown("reboot")
		time.Sleep(time.Second)
		r.logind.cancel()
		time.Sleep(time.Second)
		r.logind.shutdown("poweroff")
		r.expect(shutdown.Draining, 1)
		time.Sleep(10 * time.Second)
		r.expect(shutdown.Released, 0)
		r.expectReleased(5 * time.Second)
		if last := r.guard.Status().Last; last == nil || !last.Graceful || last.Kind != "poweroff" || len(last.Pods) != 2 {
			t.Errorf("Last = %+v, want the second shutdown, graceful", last)
		}
	})
}

func TestACancellationWhileTheFinalStatusIsWritten(t *testing.T) {
	onHost(t, func(t *testing.T, r *rig) {
		r.usual()
		r.start()
		r.report = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		r.logind.shutdown("reboot")
		time.Sleep(5 * time.Second) // all gone after four
		r.logind.cancel()
		time.Sleep(10 * time.Second)
		r.expect(shutdown.Armed, 1)
		if len(r.logind.released) != 0 {
			t.Errorf("the lock was released although the shutdown was cancelled")
		}
	})
}

func TestAFinalStatusThatWaitsIsNotWrittenAfterTheCancellation(t *testing.T) {
	onHost(t, func(t *testing.T, r *rig) {
		r.usual()
		r.start()
		turn := make(chan struct{}) // another report is under way
		r.report = func(ctx context.Context) error {
			select {
			case <-turn:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		r.logind.shutdown("reboot")
		time.Sleep(4500 * time.Millisecond) // all gone after four
		r.logind.cancel()
		r.expect(shutdown.Armed, 1)
		close(turn)
		time.Sleep(time.Minute)
		if reports := r.reported(); len(reports) != 0 {
			t.Errorf("reported %+v after the cancellation, want nothing", reports)
		}
	})
}

func TestARestartOfLogindInMidShutdownIsACancellation(t *testing.T) {
	onHost(t, func(t *testing.T, r *rig) {
		r.pod("web", 0, runtimetest.ContainerSpec{IgnoresTERM: true})
		r.start()
		r.logind.shutdown("reboot")
		time.Sleep(time.Second)
		r.logind.restart(100 * time.Millisecond)
		time.Sleep(5 * time.Second)
		r.expect(shutdown.Armed, 1)
	})
}

func TestALossOfTheBusInMidShutdownEndsNothing(t *testing.T) {
	onHost(t, func(t *testing.T, r *rig) {
		r.pod("web", 0, runtimetest.ContainerSpec{EndsAfter: 10 * time.Second})
		r.start()
		r.logind.shutdown("reboot")
		time.Sleep(1500 * time.Millisecond) // not while it asks
		r.logind.loseBus()
		time.Sleep(5 * time.Second)
		r.expect(shutdown.Draining, 1)
		time.Sleep(5 * time.Second)
		r.expect(shutdown.Released, 0)
		r.expectReleased(10 * time.Second)
	})
}

func TestALockThatIsOnItsWayWhenTheDrainEndsIsReleasedAtOnce(t *testing.T) {
	onHost(t, func(t *testing.T, r *rig) {
		r.options.Inhibitor = &rehander{logind: r.logind}
		r.pod("web", 0, runtimetest.ContainerSpec{EndsAfter: 10 * time.Second})
		r.start()
		r.logind.shutdown("reboot")
		time.Sleep(time.Second)
		resume := r.logind.hangs("Preparing")
		r.logind.loseBus()
		time.Sleep(10 * time.Second)
		r.expect(shutdown.Released, 0)
		r.expectReleased(10 * time.Second)
		resume()
		time.Sleep(time.Minute)
		r.expect(shutdown.Released, 0)
	})
}
