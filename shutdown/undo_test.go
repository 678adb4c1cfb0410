package shutdown_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/runtimetest"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/shutdown/plan"
)

const taint = "taint a:NoExecute"

// drainedHost has a host that drains itself for a while. Its containers can be started again, and
// one of them takes long to end. It returns the units that a guard starts.
func drainedHost(t *testing.T, r *rig, duration time.Duration) (*units, journal.Record) {
	t.Helper()
	u := &units{}
	r.options.Runtime, r.options.Starter = ofUnits{Fake: r.fake, r: r}, u
	r.pod("web", 0, runtimetest.ContainerSpec{Restart: runtime.RestartUnlessStopped})
	r.pod("slow", 0, runtimetest.ContainerSpec{EndsAfter: 10 * time.Second, Restart: runtime.RestartUnlessStopped})
	r.pod("dns", plan.CriticalPriority, runtimetest.ContainerSpec{Restart: runtime.RestartUnlessStopped})
	r.start()
	return u, drain(t, r, shutdown.Demand{Trigger: journal.TriggerTaint, Cause: taint}, duration)
}

func drain(t *testing.T, r *rig, d shutdown.Demand, duration time.Duration) journal.Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), duration)
	defer cancel()
	record, err := r.guard.DrainOnDemand(ctx, d, func(record *journal.Record) { r.options.Journal.PutDrained(record) })
	r.options.Journal.PutDrained(&record)
	if (err != nil) != (ctx.Err() != nil) {
		t.Errorf("DrainOnDemand() = %v, want it cancelled: %v", err, ctx.Err() != nil)
	}
	return record
}

// pending names the containers whose restart is pending.
func pending(j *journal.Journal) string {
	var names []string
	for _, o := range j.Restarts() {
		if o.Outcome == "" {
			names = append(names, fmt.Sprintf("%s after a %s", o.ID, o.By()))
		}
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

func TestADrainByTheHostCanBeUndone(t *testing.T) {
	onHost(t, func(t *testing.T, r *rig) {
		settled := 0
		r.options.Settled = func() { settled++ }
		u, record := drainedHost(t, r, 2*time.Second)
		if record.Cause != taint || record.Trigger != journal.TriggerTaint || record.CancelledAt.IsZero() {
			t.Errorf("record = %+v, want a cancelled one for the taint", record)
		}
		r.expectSignals("dns", "")
		if got := pending(r.options.Journal); got != "" {
			t.Errorf("pending = %q before the drain is undone, want nothing", got)
		}
		if r.guard.UndoDrain(t.Context(), record.StartedAt.Add(time.Second)) {
			t.Error("UndoDrain() = true of a drain that there was not")
		}
		before := settled
		if !r.guard.UndoDrain(t.Context(), record.StartedAt) || settled == before {
			t.Error("UndoDrain() = false, or nobody starts anything, want both stopped containers started")
		}
		if got, want := pending(r.options.Journal), "slow-c after a drain, web-c after a drain"; got != want {
			t.Errorf("pending = %q, want %q", got, want)
		}
		time.Sleep(time.Minute)
		u.expect(t, "after the drain is undone", "slow-c.service", "web-c.service")
		if d := r.guard.Status().Drained; d == nil || d.CancelledAt.IsZero() {
			t.Errorf("Drained = %+v, want it cancelled", d)
		}
		// What a manual drain stops after that stays stopped.
		drain(t, r, shutdown.Demand{Trigger: journal.TriggerManual}, time.Minute)
		if got := pending(r.options.Journal); got != "" {
			t.Errorf("pending = %q after a drain by a person, want nothing", got)
		}
	})
}

func TestADrainByTheHostThatFinishedStartsNothing(t *testing.T) {
	onHost(t, func(t *testing.T, r *rig) {
		u, record := drainedHost(t, r, time.Hour)
		if !record.Graceful || outcomes(record) != "dns=skipped slow=stopped web=stopped" {
			t.Errorf("drain = %s, want both stopped and the critical one skipped", outcomes(record))
		}
		r.again(false)
		time.Sleep(time.Minute)
		u.expect(t, "after the drain")
		if got := pending(r.options.Journal); got != "" {
			t.Errorf("pending = %q, want nothing", got)
		}
	})
}

// The agent was killed during the drain.
func TestADrainByTheHostIsContinuedByTheNextProcess(t *testing.T) {
	onHost(t, func(t *testing.T, r *rig) {
		_, first := drainedHost(t, r, 2*time.Second)
		r.again(false)
		kept := r.options.Journal.Drained()
		if kept == nil || !kept.StartedAt.Equal(first.StartedAt) {
			t.Fatalf("Drained() = %+v, want the drain of %v", kept, first.StartedAt)
		}
		time.Sleep(time.Minute)
		record := drain(t, r, shutdown.Demand{Trigger: journal.TriggerTaint, Cause: taint, Began: kept.StartedAt}, time.Hour)
		if !record.Graceful || !record.StartedAt.Equal(first.StartedAt) || outcomes(record) != "dns=skipped slow=stopped web=stopped" {
			t.Errorf("continued: %s since %v, want all stopped since %v", outcomes(record), record.StartedAt, first.StartedAt)
		}
		if !r.guard.UndoDrain(t.Context(), record.StartedAt) {
			t.Error("UndoDrain() = false")
		}
		if got, want := pending(r.options.Journal), "slow-c after a drain, web-c after a drain"; got != want {
			t.Errorf("pending = %q, want %q, of both processes", got, want)
		}
	})
}

// A runtime hung, and executes the stop of an undone drain only after the next drain has started. That
// one finds one pod fewer, and must still start it after the boot.
func TestADrainByTheHostStartsWhatAnUndoneOneStoppedLate(t *testing.T) {
	for name, others := range map[string]bool{"other pods run": true, "no other pod runs": false} {
		t.Run(name, func(t *testing.T) {
			onHost(t, func(t *testing.T, r *rig) {
				r.pod("web", 0, runtimetest.ContainerSpec{EndsAfter: 5 * time.Second, Restart: runtime.RestartUnlessStopped})
				r.start()
				reboot := func(cause string, duration time.Duration) time.Time {
					return drain(t, r, shutdown.Demand{Trigger: journal.TriggerReboot, Cause: cause}, duration).StartedAt
				}
				r.guard.UndoDrain(t.Context(), reboot("reboot: a", 2*time.Second))
				time.Sleep(5 * time.Second) // web ends
				if others {
					r.pod("db", 0, runtimetest.ContainerSpec{Restart: runtime.RestartUnlessStopped})
				}
				second := reboot("reboot: b", time.Minute)
				r.logind.shutdown("reboot")
				time.Sleep(time.Minute)
				r.boot = "two"
				r.again(false)
				if got := pending(r.options.Journal); got != "" {
					t.Errorf("pending = %q before the drain is undone, want nothing", got)
				}
				want := "web-c after a drain"
				if others {
					want = "db-c after a drain, " + want
				}
				if r.guard.UndoDrain(t.Context(), second); pending(r.options.Journal) != want {
					t.Errorf("pending = %q, want %q", pending(r.options.Journal), want)
				}
			})
		})
	}
}

func TestAShutdownTakesOverFromADrainByTheHost(t *testing.T) {
	onHost(t, func(t *testing.T, r *rig) {
		time.AfterFunc(2*time.Second, func() { r.logind.shutdown("reboot") })
		u := &units{}
		r.options.Runtime, r.options.Starter = ofUnits{Fake: r.fake, r: r}, u
		r.pod("slow", 0, runtimetest.ContainerSpec{EndsAfter: 10 * time.Second})
		r.start()
		_, err := r.guard.DrainOnDemand(t.Context(), shutdown.Demand{Trigger: journal.TriggerLeaseLost, Cause: "lease not renewed"}, func(record *journal.Record) { r.options.Journal.PutDrained(record) })
		if err == nil {
			t.Error("DrainOnDemand() = nil, want that it was cancelled")
		}
		time.Sleep(time.Minute)
		if last := r.guard.Status().Last; last == nil || last.Trigger != journal.TriggerShutdown || outcomes(*last) != "slow=stopped" {
			t.Errorf("Last = %+v, want the shutdown", last)
		}
		if r.guard.Refusal(t.Context()) == nil {
			t.Error("Refusal() = nil during a shutdown, want the drain refused")
		}
	})
}

// TestADrainByTheHostStopsOnlyWhatIsStored has a disk that fails before the drain, and one that fails while the first
// pods are being stopped. A drain by a person does not depend on it.
func TestADrainByTheHostStopsOnlyWhatIsStored(t *testing.T) {
	const never = time.Hour
	for name, c := range map[string]struct {
		trigger journal.Trigger
		fails   time.Duration // after the start of the drain
		all     bool
		stopped string
	}{
		"before a drain for a taint":  {journal.TriggerTaint, 0, false, ""},
		"before a drain for a reboot": {journal.TriggerReboot, 0, true, ""},
		"between its phases":          {journal.TriggerReboot, 5 * time.Second, true, "web"},
		"before a drain by a person":  {journal.TriggerManualAll, 0, true, "web dns"},
		"never, of all pods":          {journal.TriggerReboot, never, true, "web dns"},
		"never, of regular pods":      {journal.TriggerReboot, never, false, "web"},
	} {
		t.Run(name, func(t *testing.T) {
			onHost(t, func(t *testing.T, r *rig) {
				r.pod("web", 0, runtimetest.ContainerSpec{EndsAfter: 10 * time.Second, Restart: runtime.RestartUnlessStopped})
				r.pod("dns", plan.CriticalPriority, runtimetest.ContainerSpec{EndsAfter: time.Second, Restart: runtime.RestartUnlessStopped})
				r.start()
				time.Sleep(time.Minute) // what the start wrote is on disk
				if c.fails == 0 {
					r.breakDisk()
				} else {
					defer time.AfterFunc(c.fails, r.breakDisk).Stop()
				}
				_, err := r.guard.DrainOnDemand(t.Context(), shutdown.Demand{Trigger: c.trigger, Cause: "a test", All: c.all}, func(record *journal.Record) { r.options.Journal.PutDrained(record) })
				if fails := c.trigger.ByHost() && c.fails != never; errors.Is(err, shutdown.ErrUnstored) != fails {
					t.Errorf("DrainOnDemand() = %v, want that it cannot be stored: %t", err, fails)
				}
				var stopped []string
				for _, s := range r.fake.Signals() {
					stopped = append(stopped, strings.TrimSuffix(s.ContainerID, "-c"))
				}
				if got := strings.Join(stopped, " "); got != c.stopped {
					t.Errorf("stopped = %q, want %q", got, c.stopped)
				}
			})
		})
	}
}

// breakDisk removes the folder of the journal. Nothing can be written there any more.
func (r *rig) breakDisk() {
	for os.WriteFile(filepath.Dir(r.path), nil, 0o600) != nil {
		_ = os.RemoveAll(filepath.Dir(r.path)) // it fails while the journal writes there
	}
}

// TestADrainByTheHostStopsOnlyUnitsThatAreStored has a disk that fails after the stop of a pod was stored, and before
// its unit is. A shutdown stops the unit all the same: it would be killed otherwise.
func TestADrainByTheHostStopsOnlyUnitsThatAreStored(t *testing.T) {
	for name, c := range map[string]struct {
		trigger journal.Trigger // empty for a shutdown
		stopped int
	}{
		"a drain for a reboot": {journal.TriggerReboot, 0},
		"a drain for a taint":  {journal.TriggerTaint, 0},
		"a drain by a person":  {journal.TriggerManualAll, 1},
		"a shutdown":           {"", 1},
	} {
		t.Run(name, func(t *testing.T) {
			onHost(t, func(t *testing.T, r *rig) {
				r.options.Runtime = ofUnits{Fake: r.fake, r: r, before: sync.OnceFunc(r.breakDisk)}
				r.pod("web", 0, runtimetest.ContainerSpec{EndsAfter: time.Second})
				r.start()
				time.Sleep(time.Minute) // what the start wrote is on disk
				if c.trigger == "" {
					r.logind.shutdown("reboot")
					time.Sleep(time.Minute)
				} else {
					_, err := r.guard.DrainOnDemand(t.Context(), shutdown.Demand{Trigger: c.trigger, Cause: "a test", All: true}, func(record *journal.Record) { r.options.Journal.PutDrained(record) })
					if errors.Is(err, shutdown.ErrUnstored) != c.trigger.ByHost() {
						t.Errorf("DrainOnDemand() = %v, want that it cannot be stored: %t", err, c.trigger.ByHost())
					}
				}
				if got := len(r.fake.Signals()); got != c.stopped {
					t.Errorf("stopped = %d, want %d", got, c.stopped)
				}
			})
		})
	}
}

// TestADrainForARebootStopsCriticalPodsLast has a host that stops its regular pods, then all, and boots. Both are to be
// started again after that.
func TestADrainForARebootStopsCriticalPodsLast(t *testing.T) {
	onHost(t, func(t *testing.T, r *rig) {
		r.pod("web", 0, runtimetest.ContainerSpec{Restart: runtime.RestartUnlessStopped})
		r.pod("db", plan.CriticalPriority, runtimetest.ContainerSpec{EndsAfter: 8 * time.Second, Restart: runtime.RestartUnlessStopped})
		r.start()
		d := shutdown.Demand{Trigger: journal.TriggerReboot, Cause: "reboot: kernel"}
		record := drain(t, r, d, time.Minute)
		r.expectSignals("db", "")
		d.Began, d.All = record.StartedAt, true
		record = drain(t, r, d, time.Minute)
		if n := len(r.fake.Signals()); !record.Graceful || len(record.Pods) != 2 || n != 2 {
			t.Errorf("record = %+v with %d signals, want both pods stopped once", record, n)
		}
		for _, p := range record.Pods {
			if p.Outcome != journal.Stopped {
				t.Errorf("pod %+v, want it stopped within its grace period", p)
			}
		}
		r.stop()
		r.boot = "two"
		r.start()
		if !r.guard.UndoDrain(t.Context(), record.StartedAt) {
			t.Error("UndoDrain() = false, want that the boot knows the drain")
		}
		if got := pending(r.options.Journal); got != "db-c after a drain, web-c after a drain" {
			t.Errorf("pending = %q after the boot, want both", got)
		}
	})
}
