package shutdown_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/runtimetest"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/shutdown/plan"
)

func TestAShutdownFromAnnouncementToRelease(t *testing.T) {
	onHost(t, func(t *testing.T, r *rig) {
		r.usual()
		r.start()
		r.expect(shutdown.Armed, 1)
		if got := r.guard.Status(); got.InhibitDelayMax.Duration != 36*time.Second || got.InhibitDelaySource != "zz-hostler.conf" || got.GracePeriod.Duration != 30*time.Second || got.GracePeriodCriticalPods.Duration != 10*time.Second {
			t.Errorf("Status() = %+v, want the periods, and logind's delay raised to them and a margin", got)
		}
		r.logind.shutdown("reboot")
		r.expect(shutdown.Draining, 1)
		if got := r.guard.Status(); got.Deadline.IsZero() || got.Current == nil || len(got.Current.Pods) != 2 {
			t.Errorf("Status() while draining = %+v, want a deadline and the pods", got)
		}
		time.Sleep(5 * time.Second)
		r.expect(shutdown.Released, 0)
		r.expectSignals("web", "TERM@0s")
		r.expectSignals("dns", "TERM@2s")
		r.expectReleased(4 * time.Second)
		if want := []shutdown.State{shutdown.Armed, shutdown.Draining, shutdown.Released}; !slices.Equal(r.states(), want) {
			t.Errorf("observed %v, want %v", r.states(), want)
		}
		last := r.guard.Status().Last
		if last == nil || !last.Graceful || last.Kind != "reboot" || last.Trigger != journal.TriggerShutdown || len(last.Pods) != 2 {
			t.Errorf("Last = %+v, want the reboot, graceful", last)
		}
		// The control plane gets a report at once, and another before the lock is released.
		reports := r.reported()
		if len(reports) != 2 || !reports[0].at.Equal(r.began) || reports[0].status.State != shutdown.Draining ||
			reports[1].held != 1 || reports[1].status.Current.FinishedAt.IsZero() || !reports[1].status.Current.Graceful {
			t.Errorf("reported %+v, want twice, the second time complete and under the lock", reports)
		}
	})
}

func TestArmingIsRetriedAfterEachFailure(t *testing.T) {
	for _, method := range []string{"Watch", "Inhibit", "Preparing"} {
		t.Run(method+" fails", func(t *testing.T) {
			onHost(t, func(t *testing.T, r *rig) {
				r.logind.breaks(method, errBus)
				var heartbeats []error
				r.options.Heartbeat = func(err error) { heartbeats = append(heartbeats, err) }
				r.start()
				time.Sleep(10 * time.Minute)
				if got := r.guard.Status(); got.State != shutdown.Disarmed || !strings.Contains(got.Reason, errBus.Error()) {
					t.Errorf("Status() = %v (%s), want Disarmed, saying why", got.State, got.Reason)
				}
				if n := r.logind.callCount(method); n < 100 || n > 220 {
					t.Errorf("%s was tried %d times in ten minutes, want it again and again, with a pause that grows to %v", method, n, shutdown.LongestPause)
				}
				r.logind.breaks(method, nil)
				time.Sleep(shutdown.LongestPause)
				r.expect(shutdown.Armed, 1)
				r.stop()
				if n := len(heartbeats); !errors.Is(heartbeats[0], errBus) || heartbeats[n-1] != nil || n < 60 {
					t.Errorf("%d heartbeats, the first %v, the last %v, want one every ten seconds, and no error in the end", n, heartbeats[0], heartbeats[n-1])
				}
			})
		})
	}
}

func TestAfterARestartLogindIsQueriedUntilItIsReady(t *testing.T) {
	onHost(t, func(t *testing.T, r *rig) {
		r.logind.breaks("Inhibit", errBus)
		r.start()
		time.Sleep(10 * time.Minute)
		asked := r.logind.callCount("Inhibit")
		r.logind.restart(0)
		time.Sleep(time.Second)
		if n := r.logind.callCount("Inhibit") - asked; n < 3 {
			t.Errorf("logind was asked %d times in the second after its return, want at least 3", n)
		}
	})
}

func TestALossIsLoggedOnce(t *testing.T) {
	onHost(t, func(t *testing.T, r *rig) {
		var log strings.Builder
		r.options.Log = slog.New(slog.NewTextHandler(&log, nil))
		r.logind.breaks("Watch", errBus)
		r.start()
		time.Sleep(time.Hour)
		r.logind.breaks("Watch", nil)
		time.Sleep(time.Minute)
		r.stop()
		if n := strings.Count(log.String(), "not protected"); n != 1 {
			t.Errorf("an hour without a bus gave %d warnings, want 1", n)
		}
		if n := strings.Count(log.String(), "logind recovered"); n != 1 {
			t.Errorf("its end was logged %d times, want once", n)
		}
	})
}

func TestALossOfLogindOrTheBusEndsWithOneLock(t *testing.T) {
	onHost(t, func(t *testing.T, r *rig) {
		r.start()
		for range 5 {
			r.logind.loseBus()
			r.expect(shutdown.Disarmed, 1) // the lock is kept
			time.Sleep(time.Minute)
			r.expect(shutdown.Armed, 1)
			r.logind.restart(time.Second)
			time.Sleep(time.Minute)
			r.expect(shutdown.Armed, 1)
		}
	})
}

func TestAnArmedGuardIsVerifiedRegularly(t *testing.T) {
	onHost(t, func(t *testing.T, r *rig) {
		r.start()
		r.expect(shutdown.Armed, 1)
		r.logind.change(func() { r.logind.maxDelay = 5 * time.Second }) // the drop-in was removed
		time.Sleep(10 * time.Minute)
		r.expect(shutdown.Armed, 1)
		if got, err := r.logind.MaxDelay(t.Context()); err != nil || got != 36*time.Second {
			t.Errorf("MaxDelay() = %v, %v, want it raised again", got, err)
		}
		resume := r.logind.hangs("Preparing")
		time.Sleep(10 * time.Minute)
		if got := r.guard.Status(); got.State != shutdown.Disarmed { // whether the lock is still valid is unknown
			t.Errorf("Status() = %v (%s), want Disarmed", got.State, got.Reason)
		}
		resume()
		time.Sleep(time.Minute)
		r.expect(shutdown.Armed, 1)
	})
}

func TestAShutdownFoundUnderWay(t *testing.T) {
	tests := []struct {
		name    string
		prepare func(*rig)
		locks   int // while draining
	}{
		{"a refused lock", func(r *rig) { r.logind.preparing = true }, 0},
		{"a refused lock is believed before anything else", func(r *rig) { r.logind.refuses = true }, 0},
		{"announced between the lock and the question", func(r *rig) {
			resume := r.logind.hangs("Preparing")
			time.AfterFunc(time.Second, func() {
				r.logind.change(func() { r.logind.preparing = true }) // without the announcement
				resume()
			})
		}, 1},
		{"announced while the lock is being taken", func(r *rig) {
			resume := r.logind.hangs("RaiseMaxDelay")
			time.AfterFunc(500*time.Millisecond, func() { r.logind.shutdown("reboot") })
			time.AfterFunc(time.Second, resume)
		}, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			onHost(t, func(t *testing.T, r *rig) {
				r.usual()
				tt.prepare(r)
				r.start()
				time.Sleep(1500 * time.Millisecond)
				r.expect(shutdown.Draining, tt.locks)
				time.Sleep(10 * time.Second)
				r.expect(shutdown.Released, 0)
				if last := r.guard.Status().Last; last == nil || !last.Graceful || len(last.Pods) != 2 || last.Kind != "reboot" {
					t.Errorf("Last = %+v, want both pods stopped for a reboot", last)
				}
			})
		})
	}
}

func TestAnAnnouncementIsNoticedWhileTheLockIsBeingTaken(t *testing.T) {
	onHost(t, func(t *testing.T, r *rig) {
		r.usual()
		defer r.logind.hangs("RaiseMaxDelay")()
		r.start()
		time.Sleep(700 * time.Millisecond)
		r.logind.shutdown("poweroff")
		synctest.Wait()
		r.expectSignals("web", "TERM@700ms")
		r.stop()
	})
}

func TestTheLockIsReleasedAfterTheStatusAndNeverLateForIt(t *testing.T) {
	tests := []struct {
		name    string
		report  func(context.Context) error
		release time.Duration
	}{
		{"it takes a moment", func(context.Context) error { time.Sleep(time.Second); return nil }, 5 * time.Second},
		{"it hangs until it is cancelled", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, 6 * time.Second},
		{"it hangs although it is cancelled", func(context.Context) error { time.Sleep(time.Hour); return nil }, 6 * time.Second},
		{"it fails", func(context.Context) error { return errors.New("no fleet") }, 4 * time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			onHost(t, func(t *testing.T, r *rig) {
				r.usual()
				r.start()
				r.report = tt.report
				r.logind.shutdown("reboot")
				time.Sleep(20 * time.Second)
				r.expect(shutdown.Released, 0)
				r.expectReleased(tt.release)
				r.expectSignals("web", "TERM@0s")
				time.Sleep(2 * time.Hour) // for calls that hang
			})
		})
	}
}

func TestALateReportOfTheBeginningIsCancelled(t *testing.T) {
	onHost(t, func(t *testing.T, r *rig) {
		r.usual()
		r.start()
		first := true
		r.report = func(ctx context.Context) error {
			r.mu.Lock()
			slow := first
			first = false
			r.mu.Unlock()
			if slow {
				<-ctx.Done()
			}
			return ctx.Err()
		}
		r.logind.shutdown("reboot")
		time.Sleep(time.Minute)
		r.expectReleased(4 * time.Second)
		if reports := r.reported(); len(reports) != 1 || reports[0].status.Current.FinishedAt.IsZero() {
			t.Errorf("reported %+v, want the final status alone", reports)
		}
	})
}

func TestPhasesAreFittedIntoWhatIsGranted(t *testing.T) {
	onHost(t, func(t *testing.T, r *rig) {
		r.logind.ceiling = 20 * time.Second
		r.pod("web", 0, runtimetest.ContainerSpec{IgnoresTERM: true})
		r.pod("dns", plan.CriticalPriority, runtimetest.ContainerSpec{IgnoresTERM: true})
		r.start()
		r.expect(shutdown.Armed, 1)
		if got := r.guard.Status(); !strings.Contains(got.Reason, "20s") || !strings.Contains(got.Reason, "zzz.conf") {
			t.Errorf("Status().Reason = %q, want what is granted and who says so", got.Reason)
		}
		p, err := r.guard.Plan(t.Context())
		if err != nil || p.Granted.Duration != 20*time.Second || p.Total.Duration != 30*time.Second || p.Phases[0].Grace.Duration != 5*time.Second || p.Phases[1].Grace.Duration != 10*time.Second {
			t.Errorf("Plan() = %+v, %v, want 5s and 10s of 20s", p, err)
		}
		r.logind.shutdown("reboot")
		time.Sleep(20 * time.Second)
		r.expectSignals("web", "TERM@0s KILL@5s")
		r.expectSignals("dns", "TERM@5s KILL@15s")
		r.expectReleased(15 * time.Second)
		last := r.guard.Status().Last
		if last == nil || last.Shortened == nil || last.Shortened.Granted.Duration != 20*time.Second || last.Shortened.Wanted.Duration != 30*time.Second || last.Shortened.Had.Duration != 15*time.Second {
			t.Errorf("Status().Last = %+v, want 15s of 30s, for 20s were granted", last)
		}
	})
}

func TestAMaximumThatCannotBeReadOrRaised(t *testing.T) {
	onHost(t, func(t *testing.T, r *rig) {
		r.logind.breaks("RaiseMaxDelay", errors.New("read-only file system"))
		r.start()
		r.expect(shutdown.Armed, 1)
		if got := r.guard.Status(); got.InhibitDelayMax.Duration != 5*time.Second || !strings.Contains(got.Reason, "read-only") {
			t.Errorf("Status() = %+v, want logind's own 5s, and why", got)
		}
	})
}

func TestAMaximumThatHangsDoesNotKeepTheLockAway(t *testing.T) {
	onHost(t, func(t *testing.T, r *rig) {
		defer r.logind.hangs("RaiseMaxDelay")()
		r.start()
		time.Sleep(11 * time.Second)
		r.expect(shutdown.Armed, 1)
		r.stop()
	})
}

func TestYieldingToAnotherOwner(t *testing.T) {
	onHost(t, func(t *testing.T, r *rig) {
		var owner atomic.Value
		owner.Store("kubelet holds a shutdown lock")
		r.options.Delegated = func(context.Context) (string, bool) {
			evidence := owner.Load().(string)
			return evidence, evidence != ""
		}
		r.usual()
		r.start()
		r.expect(shutdown.Delegated, 0)
		if got := r.guard.Status().Reason; got != owner.Load() {
			t.Errorf("Status().Reason = %q, want %q", got, owner.Load())
		}
		if n := r.logind.callCount("Inhibit") + r.logind.callCount("RaiseMaxDelay"); n != 0 {
			t.Errorf("the lock or the maximum was touched %d times", n)
		}
		if _, err := r.guard.Drain(t.Context(), journal.TriggerServiceStop); !errors.Is(err, shutdown.ErrDelegated) {
			t.Errorf("Drain() = %v, want ErrDelegated", err)
		}
		r.logind.shutdown("reboot")
		time.Sleep(time.Second)
		r.expect(shutdown.Delegated, 0)
		r.expectSignals("web", "")
		r.logind.cancel()
		owner.Store("")
		time.Sleep(time.Minute)
		r.expect(shutdown.Armed, 1)
		owner.Store("kubelet is back")
		r.logind.restart(time.Second)
		r.expect(shutdown.Delegated, 0)
		owner.Store("")
		time.Sleep(time.Minute)
		r.expect(shutdown.Armed, 1)
		r.guard.Recheck() // nothing has changed
		r.expect(shutdown.Armed, 1)
		owner.Store("kubelet has come up later")
		r.guard.Recheck()
		r.expect(shutdown.Delegated, 0)
	})
}

func TestSwitchedOff(t *testing.T) {
	onHost(t, func(t *testing.T, r *rig) {
		r.options.Phases = nil
		r.usual()
		r.start()
		r.expect(shutdown.Disarmed, 0)
		// Without a cause: enabled: false and gracePeriod: 0s both give no phases.
		if got := r.guard.Status().Reason; got != "switched off in the configuration" {
			t.Errorf("Status().Reason = %q, want %q", got, "switched off in the configuration")
		}
		if n := r.logind.callCount("Watch"); n != 0 {
			t.Errorf("logind was asked %d times, want it left alone", n)
		}
		if _, err := r.guard.Drain(t.Context(), journal.TriggerServiceStop); !errors.Is(err, shutdown.ErrSwitchedOff) {
			t.Errorf("Drain() = %v, want ErrSwitchedOff", err)
		}
		if record, err := r.guard.Drain(t.Context(), journal.TriggerManualAll); err != nil || !record.Graceful || len(record.Pods) != 2 {
			t.Errorf("Drain() by a person = %+v, %v, want both pods stopped", record, err)
		}
	})
}

func TestNoLoginManager(t *testing.T) {
	onHost(t, func(t *testing.T, r *rig) {
		r.options.Inhibitor = nil
		r.usual()
		r.start()
		r.expect(shutdown.Disarmed, 0)
		record, err := r.guard.Drain(t.Context(), journal.TriggerServiceStop)
		if err != nil || !record.Graceful || len(record.Pods) != 2 || record.Trigger != journal.TriggerServiceStop {
			t.Errorf("Drain() = %+v, %v, want both pods stopped", record, err)
		}
		r.expect(shutdown.Released, 0)
	})
}

func TestObservedPodsAreUsedIfTheRuntimeHangs(t *testing.T) {
	onHost(t, func(t *testing.T, r *rig) {
		r.fake.Inject(runtimetest.Pods, runtimetest.Fault{Hang: true})
		r.start()
		r.pod("web", 0, runtimetest.ContainerSpec{})
		r.guard.Observe([]runtime.Pod{{Runtime: "fake", ID: "web", Name: "web", Containers: []runtime.Container{
			{Runtime: "fake", ID: "web-c", Name: "c", State: runtime.Running},
		}}})
		r.logind.shutdown("reboot")
		time.Sleep(20 * time.Millisecond)
		r.expectSignals("web", "TERM@10ms")
		if _, err := r.guard.Plan(t.Context()); err == nil || !strings.Contains(err.Error(), "list pods") {
			t.Errorf("Plan() = %v, want it to say that the runtime does not list", err)
		}
	})
}

func TestASlowObserverDelaysNothing(t *testing.T) {
	onHost(t, func(t *testing.T, r *rig) {
		r.usual()
		note := r.options.Notify
		r.options.Notify = func(c shutdown.Change) { time.Sleep(time.Minute); note(c) }
		r.start()
		r.logind.shutdown("reboot")
		time.Sleep(10 * time.Second)
		r.expectReleased(4 * time.Second)
		time.Sleep(10 * time.Minute)
		if want := []shutdown.State{shutdown.Armed, shutdown.Draining, shutdown.Released}; !slices.Equal(r.states(), want) {
			t.Errorf("observed %v, want %v, in order", r.states(), want)
		}
	})
}
