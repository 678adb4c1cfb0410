package shutdown_test

import (
	"context"
	"fmt"
	"os"
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

// ofUnits is a runtime that stops a container by stopping the unit with its name.
type ofUnits struct {
	*runtimetest.Fake
	r *rig
	// before, if not nil, is called before the unit of a container is reported.
	before func()
}

func (u ofUnits) StopContainer(ctx context.Context, c runtime.Container, grace time.Duration) error {
	name := c.ID + ".service"
	if u.before != nil {
		u.before()
	}
	if err := runtime.ReportUnitStops(ctx, []string{name}); err != nil {
		return err
	}
	if data, err := os.ReadFile(u.r.path); u.before == nil && u.r.guard.Status().State == shutdown.Draining && (err != nil || !strings.Contains(string(data), name)) {
		u.r.t.Errorf("on disk is %s, %v when %s is about to be stopped, want it there", data, err, name)
	}
	return u.Fake.StopContainer(ctx, c, grace)
}

// units are the units that a guard starts.
type units struct {
	mu      sync.Mutex
	fails   error
	tries   int
	started []string
	stops   time.Time // until when each is stopping
}

func (u *units) UnitStart(context.Context, string, time.Time) (starting bool, failed string, err error) {
	return false, "", nil
}

func (u *units) Release() {}

func (u *units) UnitChanges(context.Context, string) (bool, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return time.Now().Before(u.stops), nil
}

func (u *units) StartUnit(_ context.Context, name string) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.tries++
	if u.fails == nil {
		u.started = append(u.started, name)
	}
	return u.fails
}

func (u *units) fail(err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.fails, u.tries = err, 0
}

func (u *units) expect(t *testing.T, when string, want ...string) {
	t.Helper()
	u.mu.Lock()
	defer u.mu.Unlock()
	if got := fmt.Sprint(slices.Sorted(slices.Values(u.started))); got != fmt.Sprint(want) {
		t.Errorf("%s: %v are started, want %v", when, got, want)
	}
}

// unitsHost has a unit's container that is being stopped for a shutdown, and a critical one whose
// stop has not begun.
func unitsHost(r *rig) *units {
	u := &units{}
	r.options.Runtime = ofUnits{Fake: r.fake, r: r}
	r.options.Starter = u
	r.pod("web", 0, runtimetest.ContainerSpec{EndsAfter: 5 * time.Second})
	r.pod("dns", plan.CriticalPriority, runtimetest.ContainerSpec{})
	r.start()
	r.logind.shutdown("reboot")
	time.Sleep(3 * time.Second)
	return u
}

// again starts another process in the same boot, with or without a shutdown in progress.
func (r *rig) again(preparing bool) {
	r.t.Helper()
	r.stop()
	r.logind.change(func() { r.logind.locks, r.logind.preparing = map[int]bool{}, preparing })
	r.start()
}

// One of them may depend on another that is still stopping.
func TestUnitsAreStartedOnceAllHaveStopped(t *testing.T) {
	onHost(t, func(t *testing.T, r *rig) {
		u := unitsHost(r)
		time.Sleep(time.Minute)
		u.mu.Lock()
		u.stops = time.Now().Add(3 * time.Second)
		u.mu.Unlock()
		r.logind.cancel()
		time.Sleep(2 * time.Second)
		u.expect(t, "while one still stops")
		time.Sleep(2 * time.Second)
		u.mu.Lock()
		defer u.mu.Unlock()
		if got := fmt.Sprint(u.started); got != "[dns-c.service web-c.service]" {
			t.Errorf("started %s, want the one first that was stopped last", got)
		}
	})
}

func TestAUnitIsStartedAgainWhereTheHostLivesOn(t *testing.T) {
	for name, after := range map[string]struct {
		lives   func(r *rig)
		started []string
	}{
		"the shutdown is cancelled":                                 {func(r *rig) { r.logind.cancel() }, []string{"web-c.service"}},
		"it is cancelled after the release":                         {func(r *rig) { time.Sleep(time.Minute); r.logind.cancel() }, []string{"dns-c.service", "web-c.service"}},
		"the agent was killed, and it is cancelled":                 {func(r *rig) { r.again(false) }, []string{"web-c.service"}},
		"the agent was killed, continues, and then it is cancelled": {func(r *rig) { r.again(true); time.Sleep(time.Second); r.logind.cancel() }, []string{"web-c.service"}},
		"it is announced again immediately, and then cancelled": {func(r *rig) {
			r.logind.cancel()
			r.logind.shutdown("reboot")
			time.Sleep(time.Second)
			r.logind.cancel()
		}, []string{"web-c.service"}},
	} {
		t.Run(name, func(t *testing.T) {
			onHost(t, func(t *testing.T, r *rig) {
				u := unitsHost(r)
				u.expect(t, "while the host goes down")
				after.lives(r)
				time.Sleep(time.Minute)
				r.expect(shutdown.Armed, 1)
				u.expect(t, "afterwards", after.started...)
				if pending := r.options.Journal.PendingServices(); len(pending) > 0 {
					t.Errorf("PendingServices() = %+v once all are started, want none", pending)
				}
				if r := r.guard.Status().Cancelled; r != nil && r.First() != "" {
					t.Errorf("Cancelled says %q, want no service that was stopped first", r.First())
				}
			})
		})
	}
}

func TestAUnitIsNotStartedAgain(t *testing.T) {
	for name, then := range map[string]func(t *testing.T, r *rig, u *units){
		"in the next boot": func(t *testing.T, r *rig, u *units) {
			r.boot = "two"
			r.again(false)
		},
		"amid the next shutdown": func(t *testing.T, r *rig, u *units) {
			u.fail(fmt.Errorf("start it: %w", shutdown.ErrStillStops))
			r.logind.cancel()
			time.Sleep(10 * time.Second)
			r.logind.shutdown("reboot")
			time.Sleep(time.Second)
			u.fail(nil)
		},
		"where a person drains all": func(t *testing.T, r *rig, u *units) {
			u.fail(fmt.Errorf("start it: %w", shutdown.ErrStillStops))
			r.logind.cancel()
			time.Sleep(10 * time.Second)
			if _, err := r.guard.Drain(t.Context(), journal.TriggerManualAll); err != nil {
				t.Fatal(err)
			}
			u.fail(nil)
		},
		"where there is none any more": func(t *testing.T, r *rig, u *units) {
			u.fail(fmt.Errorf("start it: %w", shutdown.ErrNoService))
			r.logind.cancel()
			time.Sleep(time.Minute)
			u.mu.Lock()
			tries := u.tries
			u.mu.Unlock()
			if pending := r.options.Journal.PendingServices(); tries != 1 || len(pending) > 0 {
				t.Errorf("it was tried %d times, and PendingServices() = %+v, want once and none", tries, pending)
			}
			u.fail(nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			onHost(t, func(t *testing.T, r *rig) {
				u := unitsHost(r)
				then(t, r, u)
				time.Sleep(time.Minute)
				u.expect(t, "a minute later")
			})
		})
	}
}

// A unit whose stop takes long is not forgotten. A shutdown that begins in the meantime does not
// record it as a service that was stopped before the pods.
func TestAUnitThatStillStopsIsStartedOnceItHas(t *testing.T) {
	onHost(t, func(t *testing.T, r *rig) {
		u := unitsHost(r)
		u.fail(fmt.Errorf("start it: %w", shutdown.ErrStillStops))
		r.logind.cancel()
		time.Sleep(4 * time.Minute)
		if notStarted := r.guard.Status().NotStarted; len(notStarted) > 0 {
			t.Errorf("Status().NotStarted = %v, want no mention of those that only take their time", notStarted)
		}
		time.Sleep(6 * time.Minute)
		if notStarted := r.guard.Status().NotStarted; len(notStarted) != 1 || !strings.Contains(notStarted[0].Reason, "it is still stopping") {
			t.Errorf("Status().NotStarted = %v after ten minutes, want web-c.service, which still stops", notStarted)
		}
		r.logind.shutdown("reboot")
		time.Sleep(time.Second)
		if now := r.guard.Status().Current; now == nil || len(now.StoppedFirst) > 0 {
			t.Errorf("Current = %+v, want nothing stopped first", now)
		}
		r.logind.cancel()
		time.Sleep(10 * time.Minute)
		u.fail(nil)
		time.Sleep(time.Minute)
		u.expect(t, "once it has stopped", "dns-c.service", "web-c.service")
	})
}

// Units that a manual drain stops stay stopped, whatever a shutdown before had stopped.
func TestAUnitThatAManualDrainStopsIsNotStartedAgain(t *testing.T) {
	onHost(t, func(t *testing.T, r *rig) {
		r.options.Runtime, r.options.Inhibitor = ofUnits{Fake: r.fake, r: r}, nil
		r.pod("web", 0, runtimetest.ContainerSpec{})
		r.pod("other", 0, runtimetest.ContainerSpec{})
		r.start()
		r.options.Journal.Put(&journal.Record{BootID: "one", StartedAt: time.Now(), Pods: []journal.PodRecord{}}) // its end is not known yet
		for _, name := range []string{"web-c.service", "db.service"} {
			r.options.Journal.AddPendingUnit(name, time.Now())
		}
		if _, err := r.guard.Drain(t.Context(), journal.TriggerManual); err != nil {
			t.Fatal(err)
		}
		if pending := r.options.Journal.PendingServices(); len(pending) != 1 || pending[0].Name != "db.service" {
			t.Errorf("PendingServices() = %+v, want db.service alone", pending)
		}
	})
}

// If the shutdown is cancelled, the unit must be started again.
func TestAUnitIsStartedAgainIfAShutdownTookOverFromAManualDrain(t *testing.T) {
	onHost(t, func(t *testing.T, r *rig) {
		u := &units{}
		r.options.Runtime, r.options.Starter = ofUnits{Fake: r.fake, r: r}, u
		r.pod("web", 0, runtimetest.ContainerSpec{EndsAfter: 5 * time.Second})
		r.start()
		go func() { _, _ = r.guard.Drain(t.Context(), journal.TriggerManualAll) }()
		time.Sleep(time.Second)
		r.logind.shutdown("reboot")
		time.Sleep(time.Second)
		r.logind.cancel()
		time.Sleep(time.Minute)
		u.expect(t, "once the shutdown is cancelled", "web-c.service")
	})
}
