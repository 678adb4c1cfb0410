package shutdown_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"hostler.io/hostler/runtime/runtimetest"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/shutdown/plan"
)

func TestTheNextProcessReportsTheLastShutdown(t *testing.T) {
	for _, boot := range []string{"one", "two"} {
		onHost(t, func(t *testing.T, r *rig) {
			r.usual()
			r.start()
			r.logind.shutdown("reboot")
			time.Sleep(5 * time.Second)
			r.stop()
			r.logind.change(func() { r.logind.preparing = false })
			r.boot = boot
			r.start()
			r.expect(shutdown.Armed, 1)
			last := r.guard.Status().Last
			if last == nil || !last.Graceful || last.BootID != "one" || len(last.Pods) != 2 || last.Pods[0].Outcome != journal.Stopped {
				t.Errorf("Last on boot %s = %+v, want it graceful, pod by pod", boot, last)
			}
		})
	}
}

func TestEverythingIsOnDiskBeforeTheLockIsReleased(t *testing.T) {
	onHost(t, func(t *testing.T, r *rig) {
		r.usual()
		var last *journal.Record
		r.logind.closing = func() { last = journal.Open(r.path, "two", r.options.Log).Last() }
		r.start()
		r.logind.shutdown("reboot")
		time.Sleep(time.Minute)
		r.expect(shutdown.Released, 0)
		r.expectReleased(4 * time.Second)
		if last == nil || !last.Graceful || len(last.Pods) != 2 || last.FinishedAt.IsZero() {
			t.Errorf("the next boot would know %+v, want a graceful shutdown of two pods", last)
		}
	})
}

func TestAPowerCutIsNotGraceful(t *testing.T) {
	onHost(t, func(t *testing.T, r *rig) {
		r.usual()
		r.start()
		time.Sleep(time.Minute)
		synctest.Wait()
		saved, err := os.ReadFile(r.path)
		if err != nil {
			t.Fatal(err)
		}
		r.stop()
		if err := os.WriteFile(r.path, saved, 0o600); err != nil { // as if it had not stopped
			t.Fatal(err)
		}
		r.boot = "two"
		r.logind.change(func() { r.logind.locks = map[int]bool{} })
		r.start()
		last := r.guard.Status().Last
		if last == nil || last.Graceful || last.BootID != "one" || last.Trigger != journal.TriggerUnknown || len(last.Pods) != 2 || last.Pods[0].Outcome != journal.Left {
			t.Errorf("Last = %+v, want it not graceful, with both pods left", last)
		}
	})
}

func TestTheAgentIsRestartedInMidDrain(t *testing.T) {
	onHost(t, func(t *testing.T, r *rig) {
		r.pod("web", 0, runtimetest.ContainerSpec{EndsAfter: 9 * time.Second})
		r.pod("deaf", 0, runtimetest.ContainerSpec{IgnoresTERM: true})
		r.pod("dns", plan.CriticalPriority, runtimetest.ContainerSpec{IgnoresTERM: true})
		r.start()
		r.logind.shutdown("reboot")
		time.Sleep(4 * time.Second)
		r.stop()
		if held := r.logind.held(); held != 1 {
			t.Errorf("%d locks after the guard ended, want 1, for the next process", held)
		}
		time.Sleep(2 * time.Second)
		r.build()
		if !r.guard.Status().GoingDown() {
			t.Error("GoingDown() = false where the next process has not looked yet, want true")
		}
		clock := r.guard.Status() // the boot may have set it back
		clock.Current = clock.Current.Clone()
		clock.Current.StartedAt = time.Now().Add(time.Hour)
		if clock.GoingDown() {
			t.Error("GoingDown() = true of a drain that begins in an hour, want false")
		}
		r.start() // the lock is refused because of the shutdown
		time.Sleep(30 * time.Second)
		r.expect(shutdown.Released, 1) // the fake keeps the first lock, which has no owner any more
		r.expectSignals("web", "TERM@0s")
		r.expectSignals("deaf", "TERM@0s KILL@20s")
		r.expectSignals("dns", "TERM@20s KILL@30s")
		last := r.guard.Status().Last
		if last == nil || !last.Graceful || !last.StartedAt.Equal(r.began) || last.Kind != "reboot" || len(last.Pods) != 3 {
			t.Errorf("Last = %+v, want one story of three pods", last)
		}
		r.stop()
		r.boot = "two"
		r.logind.change(func() { r.logind.preparing = false })
		r.start()
		if again := r.guard.Status().Last; !sameRecord(again, last) {
			t.Errorf("Last on the next boot = %+v, want %+v", again, last)
		}
	})
}

func TestAnInterruptedAndCancelledDrainIsSettled(t *testing.T) {
	onHost(t, func(t *testing.T, r *rig) {
		r.pod("web", 0, runtimetest.ContainerSpec{IgnoresTERM: true})
		r.start()
		r.logind.shutdown("reboot")
		time.Sleep(4 * time.Second)
		r.stop()
		r.logind.cancel()
		r.logind.change(func() { r.logind.locks = map[int]bool{} })
		r.start()
		r.expect(shutdown.Armed, 1)
		if r.guard.Status().GoingDown() {
			t.Error("GoingDown() = true after the cancellation, want false")
		}
		time.Sleep(time.Minute)
		r.expectSignals("web", "TERM@0s")
		r.logind.shutdown("reboot")
		time.Sleep(time.Minute)
		if last := r.guard.Status().Last; last == nil || last.StartedAt.Equal(r.began) {
			t.Errorf("Last = %+v, want the second shutdown", last)
		}
	})
}

func TestADiskThatIsFullDoesNotStopADrain(t *testing.T) {
	onHost(t, func(t *testing.T, r *rig) {
		obstacle := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(obstacle, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		r.path = filepath.Join(obstacle, "shutdown.json")
		r.usual()
		r.start()
		r.logind.shutdown("reboot")
		time.Sleep(time.Minute)
		r.expect(shutdown.Released, 0)
		r.expectReleased(4 * time.Second)
	})
}

func TestAnOldShutdownIsNotContinued(t *testing.T) {
	onHost(t, func(t *testing.T, r *rig) {
		r.pod("web", 0, runtimetest.ContainerSpec{EndsAfter: 5 * time.Second})
		r.start()
		r.logind.shutdown("reboot")
		time.Sleep(time.Second)
		r.stop()
		// The shutdown was cancelled while no agent was running, and nothing can be queried since.
		r.fake.TakePod("web")
		r.pod("new", 0, runtimetest.ContainerSpec{EndsAfter: 5 * time.Second})
		r.logind.breaks("Watch", errBus)
		time.Sleep(time.Hour)
		r.start()
		record, err := r.guard.Drain(t.Context(), journal.TriggerServiceStop)
		if err != nil || !record.Graceful || len(record.Pods) != 1 || record.Pods[0].Outcome != journal.Stopped {
			t.Errorf("Drain() = %+v, %v, want the new pod stopped, with all its time", record, err)
		}
		r.expectSignals("new", "TERM@1h0m1s")
	})
}

func TestAGuardThatPanicsContinuesTheDrainInTheNextRun(t *testing.T) {
	onHost(t, func(t *testing.T, r *rig) {
		r.pod("deaf", 0, runtimetest.ContainerSpec{IgnoresTERM: true})
		heartbeats := 0
		r.options.Heartbeat = func(error) {
			if heartbeats++; heartbeats == 2 { // the first one reports that it is armed
				panic("a fault of ours")
			}
		}
		r.options.Inhibitor = &rehander{logind: r.logind}
		r.options.Journal = journal.Open(r.path, r.boot, r.options.Log)
		guard, err := shutdown.New(r.options)
		if err != nil {
			t.Fatal(err)
		}
		r.guard = guard
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for ctx.Err() == nil {
				func() {
					defer func() { _ = recover() }()
					_ = guard.Run(ctx)
				}()
				time.Sleep(time.Second)
			}
		}()
		synctest.Wait()
		r.logind.shutdown("reboot")
		time.Sleep(15 * time.Second)
		r.expect(shutdown.Draining, 1)
		time.Sleep(15 * time.Second)
		r.expect(shutdown.Released, 0)
		r.expectSignals("deaf", "TERM@0s KILL@20s")
		cancel()
		<-ended
	})
}

// Not in a bubble, because times in a bubble have no monotonic reading.
func TestAContinuedDrainDoesNotUseTheWallClock(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	path := filepath.Join(t.TempDir(), "shutdown.json")
	began, err := json.Marshal(map[string]any{"version": 1, "bootID": "one", "record": journal.Record{BootID: "one", StartedAt: time.Now().Add(-3 * time.Second)}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, began, 0o600); err != nil {
		t.Fatal(err)
	}
	draining := make(chan shutdown.Status, 1)
	guard, err := shutdown.New(shutdown.Options{
		Phases: plan.Defaults(), Runtime: runtimetest.NewFake(runtimetest.Options{}), Journal: journal.Open(path, "one", log), Log: log,
		Notify: func(c shutdown.Change) {
			if c.To == shutdown.Draining {
				draining <- c.Status
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- guard.Run(ctx) }()
	if _, err := guard.Drain(ctx, journal.TriggerServiceStop); err != nil {
		t.Errorf("Drain() = %v, want nil", err)
	}
	deadline := (<-draining).Deadline
	if left := time.Until(deadline); left > plan.Total(plan.Defaults())+plan.Margin-3*time.Second {
		t.Errorf("%v are left, want what the first process left", left)
	}
	if deadline == deadline.Round(0) { // Round(0) removes the monotonic reading
		t.Errorf("Deadline = %v is a wall clock time: a clock change would end every grace period", deadline)
	}
	cancel()
	<-ended
}

// sameRecord compares the JSON, because decoded times have another zone.
func sameRecord(a, b *journal.Record) bool {
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	return string(x) == string(y)
}
