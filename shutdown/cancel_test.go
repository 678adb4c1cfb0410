package shutdown_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/runtimetest"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/shutdown/journal"
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
			// Before the first stop, within each phase, between phases, and after the release.
			time.Sleep(time.Duration(i) * 30 * time.Millisecond)
			r.logind.cancel()
			if i%3 == 0 {
				r.logind.shutdown("reboot") // and at once again
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
		time.Sleep(2 * time.Second) // for calls in progress, at most
		r.expect(shutdown.Armed, 1)
		time.Sleep(time.Hour)
		r.expectSignals("web", "TERM@0s") // and no KILL
		r.expectSignals("dns", "")
		if got := r.guard.Status(); got.Current != nil || got.Last != nil {
			t.Errorf("Status() = %+v, want no shutdown in it", got)
		}
	})
}

// `shutdown -c` of systemd 257 cancels a delayed shutdown without a signal.
func TestACancellationThatNobodyReportsIsNoticed(t *testing.T) {
	onHost(t, func(t *testing.T, r *rig) {
		r.pod("web", 0, runtimetest.ContainerSpec{IgnoresTERM: true})
		r.pod("dns", plan.CriticalPriority, runtimetest.ContainerSpec{})
		r.start()
		r.logind.shutdown("reboot")
		time.Sleep(3500 * time.Millisecond)
		r.logind.cancelWithoutSignal()
		time.Sleep(4 * time.Second)
		r.expect(shutdown.Armed, 1)
		time.Sleep(time.Hour)
		r.expectSignals("web", "TERM@0s") // and no KILL
		r.expectSignals("dns", "")
	})
}

// A kubelet that starts during a drain handles the next shutdown, not this one.
func TestACancellationThatNobodyReportsIsNoticedBesideAnotherOwner(t *testing.T) {
	onHost(t, func(t *testing.T, r *rig) {
		var kubelet atomic.Bool
		r.options.Delegated = func(context.Context) (string, bool) { return "kubelet", kubelet.Load() }
		r.pod("web", 0, runtimetest.ContainerSpec{IgnoresTERM: true})
		r.pod("dns", plan.CriticalPriority, runtimetest.ContainerSpec{})
		r.start()
		r.logind.shutdown("reboot")
		time.Sleep(3500 * time.Millisecond)
		kubelet.Store(true)
		r.logind.cancelWithoutSignal()
		time.Sleep(4 * time.Second)
		r.expect(shutdown.Delegated, 0)
		time.Sleep(time.Hour)
		r.expectSignals("web", "TERM@0s") // and no KILL
		r.expectSignals("dns", "")
	})
}

func TestACancellationThatNobodyReportsIsNoticedAfterTheRelease(t *testing.T) {
	onHost(t, func(t *testing.T, r *rig) {
		r.usual()
		r.start()
		r.logind.shutdown("reboot") // another program delays the shutdown, too
		time.Sleep(10 * time.Second)
		r.expect(shutdown.Released, 0)
		r.logind.cancelWithoutSignal()
		time.Sleep(2 * time.Second)
		r.expect(shutdown.Armed, 1)
	})
}

func TestAShutdownAnnouncedAgainWhileTheLastIsBeingCancelled(t *testing.T) {
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
		time.Sleep(5 * time.Second) // all are stopped after four
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
		turn := make(chan struct{}) // another report is in progress
		r.report = func(ctx context.Context) error {
			select {
			case <-turn:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		r.logind.shutdown("reboot")
		time.Sleep(4500 * time.Millisecond) // all are stopped after four
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
		time.Sleep(1500 * time.Millisecond) // not during a query
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

// pending returns the restarts in the journal.
func (r *rig) pending() string {
	var ids []string
	for _, o := range r.options.Journal.Restarts() {
		if o.Outcome == "" {
			ids = append(ids, o.ID)
		}
	}
	return strings.Join(ids, " ")
}

// restartable adds a container as Docker reports it.
func (r *rig) restartable(name string, c runtimetest.ContainerSpec) {
	c.Restart = runtime.RestartUnlessStopped
	r.pod(name, 0, c)
}

// The restarter reads the journal when it is notified, so the restarts must be recorded before.
func TestRestartsAreRecordedBeforeSettledIsCalled(t *testing.T) {
	for name, after := range map[string]time.Duration{"in the middle": 3 * time.Second, "after the release": 20 * time.Second} {
		t.Run(name, func(t *testing.T) {
			onHost(t, func(t *testing.T, r *rig) {
				var reported []string
				r.options.Settled = func() {
					preparing := false
					r.logind.change(func() { preparing = r.logind.preparing })
					if current := r.options.Journal.Current(); current != nil || preparing {
						t.Errorf("reported while %+v is in progress", current)
					}
					reported = append(reported, r.pending())
				}
				r.restartable("web", runtimetest.ContainerSpec{EndsAfter: time.Second})
				r.pod("slow", 0, runtimetest.ContainerSpec{EndsAfter: 12 * time.Second})
				r.start()
				r.logind.shutdown("reboot")
				time.Sleep(after)
				r.logind.cancel()
				time.Sleep(time.Minute)
				r.expect(shutdown.Armed, 1)
				if got := strings.Join(reported, ", "); got != "web-c" {
					t.Errorf("reported %q, want one report that web will be started again", got)
				}
			})
		})
	}
}

// Between the cancellation and the moment when the guard is armed again, the journal is not settled
// yet.
func TestAShutdownRightAfterACancelledOneKeepsItsRestarts(t *testing.T) {
	onHost(t, func(t *testing.T, r *rig) {
		r.restartable("web", runtimetest.ContainerSpec{EndsAfter: time.Second})
		r.pod("slow", 0, runtimetest.ContainerSpec{EndsAfter: 12 * time.Second})
		r.start()
		r.logind.shutdown("reboot")
		time.Sleep(3 * time.Second)
		resume := r.logind.hangs("Inhibit")
		r.logind.cancel()
		time.Sleep(3 * time.Second)
		if got := r.pending(); got != "" {
			t.Fatalf("pending = %q, want that it is not settled yet", got)
		}
		r.logind.shutdown("reboot")
		resume()
		time.Sleep(time.Minute)
		r.stop()
		r.options.Journal = journal.Open(r.path, "two", r.options.Log)
		if got := r.pending(); got != "web-c" {
			t.Errorf("pending on the next boot = %q, want web", got)
		}
		r.logind.change(func() { r.logind.locks, r.logind.preparing = map[int]bool{}, false })
		r.boot = "two"
		r.start()
	})
}

// The same for a manual drain, after which the containers stay stopped.
func TestADrainRightAfterACancelledShutdownWaivesItsRestarts(t *testing.T) {
	onHost(t, func(t *testing.T, r *rig) {
		r.restartable("web", runtimetest.ContainerSpec{EndsAfter: time.Second})
		r.pod("slow", 0, runtimetest.ContainerSpec{EndsAfter: 12 * time.Second})
		r.start()
		r.logind.shutdown("reboot")
		time.Sleep(3 * time.Second)
		resume := r.logind.hangs("Inhibit")
		r.logind.cancel()
		time.Sleep(3 * time.Second)
		if _, err := r.guard.Drain(t.Context(), journal.TriggerManual); err != nil {
			t.Errorf("Drain() = %v", err)
		}
		resume()
		time.Sleep(time.Minute)
		if got := r.pending(); got != "" || len(r.options.Journal.Restarts()) != 1 {
			t.Errorf("pending = %q of %+v, want that nobody starts web", got, r.options.Journal.Restarts())
		}
	})
}
