package shutdown_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/runtimetest"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/shutdown/journal"
)

// service is a service that is stopped before the pods. Its stop takes two seconds.
type service struct {
	mu          sync.Mutex
	began       time.Time
	runs        bool
	broken      bool     // it cannot be started
	starts      bool     // its start takes long
	failed      string   // result of the start, if it fails
	unreachable bool     // its state cannot be queried
	asked       func()   // called when its stop is requested, if not nil
	log         []string // calls, with the time
}

// orchestrated adds a service that is stopped before the pods.
func (r *rig) orchestrated() *service {
	s := &service{began: r.began, runs: true}
	r.serve(map[string]*service{"k3s.service": s})
	return s
}

// serve adds services that are stopped before the pods.
func (r *rig) serve(all services) {
	r.options.First = shutdown.First{Names: slices.Sorted(maps.Keys(all)), Services: all}
	r.options.Starter = all
}

// services are the services of a host, by name.
type services map[string]*service

func (s services) OrderedAfter(context.Context, ...string) (map[string][]string, error) {
	return nil, nil
}

func (s services) UnitRuns(ctx context.Context, name string) (bool, error) {
	return s[name].running(ctx, name)
}

func (s services) StopAlone(ctx context.Context, name string) (bool, error) {
	return s[name].stop(ctx, name)
}

// UnitChanges is not needed here: StartUnit returns an error while a service is stopping.
func (s services) UnitChanges(context.Context, string) (bool, error) { return false, nil }

func (s services) StartUnit(ctx context.Context, name string) error { return s[name].start(ctx, name) }

func (s services) UnitStart(ctx context.Context, name string, since time.Time) (starting bool, failed string, err error) {
	return s[name].fares(ctx, name, since)
}

func (services) Adopt(context.Context, []runtime.Pod, []runtime.Pod, map[string]string) map[string]string {
	return nil
}

func (services) Release() {}

func (s *service) note(what string) {
	s.log = append(s.log, fmt.Sprint(what, "@", time.Since(s.began)))
}

func (s *service) running(context.Context, string) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.runs, nil
}

func (s *service) stop(ctx context.Context, _ string) (ran bool, err error) {
	if s.asked != nil {
		s.asked()
	}
	s.mu.Lock()
	ran = s.runs
	if ran {
		s.note("stop")
		s.runs = false
	}
	s.mu.Unlock()
	if !ran {
		return false, nil
	}
	select {
	case <-time.After(2 * time.Second):
		return true, nil
	case <-ctx.Done():
		return true, context.Cause(ctx)
	}
}

func (s *service) start(context.Context, string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken {
		return errors.New("no answer")
	}
	s.note("start")
	s.runs = true
	return nil
}

func (s *service) breaks(broken bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken = broken
}

func (s *service) expect(t *testing.T, want string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if got := strings.Join(s.log, " "); got != want {
		t.Errorf("the service saw %q, want %q", got, want)
	}
}

func TestAHostThatGoesDownStartsNoServiceAgain(t *testing.T) {
	onHost(t, func(t *testing.T, r *rig) {
		s := r.orchestrated()
		r.usual()
		r.start()
		if got, want := r.guard.Status().InhibitDelayNeeded.Duration, 48*time.Second; got != want {
			t.Errorf("InhibitDelayNeeded = %v, want %v with what the service may take", got, want)
		}
		r.logind.shutdown("reboot")
		time.Sleep(time.Minute)
		r.expect(shutdown.Released, 0)
		r.expectSignals("web", "TERM@2s")
		r.expectSignals("dns", "TERM@4s")
		r.stop()
		r.boot = "two"
		r.logind.change(func() { r.logind.preparing = false })
		r.start()
		time.Sleep(time.Minute)
		r.expect(shutdown.Armed, 1)
		s.expect(t, "stop@0s")
		if last := r.guard.Status().Last; last == nil || last.First() != "k3s.service stopped first" {
			t.Errorf("Last = %+v, want the services that were stopped first", last)
		}
	})
}

func TestAServiceIsStartedAgainWhereTheHostLivesOn(t *testing.T) {
	for name, after := range map[string]time.Duration{
		"while it ends": time.Second, "in a phase": 3 * time.Second, "after the release": 20 * time.Second,
	} {
		t.Run(name, func(t *testing.T) {
			onHost(t, func(t *testing.T, r *rig) {
				s := r.orchestrated()
				var settled atomic.Int32
				r.options.Settled = func() { settled.Add(1) }
				r.usual()
				r.start()
				r.logind.shutdown("reboot")
				time.Sleep(after)
				r.logind.cancel()
				time.Sleep(5 * time.Second)
				r.expect(shutdown.Armed, 1)
				if settled.Load() == 0 {
					t.Error("the record of the drain changes after the service was started, want it finished")
				}
				s.mu.Lock()
				if len(s.log) != 2 || s.log[0] != "stop@0s" || !strings.HasPrefix(s.log[1], "start@") {
					t.Errorf("the service saw %q, want one stop and one start", s.log)
				}
				s.mu.Unlock()
				if pending := r.options.Journal.PendingServices(); len(pending) > 0 {
					t.Errorf("Owed() = %+v once it is started, want none", pending)
				}
				r.logind.shutdown("reboot")
				time.Sleep(time.Minute)
				r.expect(shutdown.Released, 0)
				if s.runs {
					t.Error("the service runs after the next shutdown, want it stopped")
				}
			})
		})
	}
}

func TestAServiceThatDoesNotStartIsTriedAgain(t *testing.T) {
	onHost(t, func(t *testing.T, r *rig) {
		s := r.orchestrated()
		s.breaks(true)
		r.usual()
		r.start()
		r.logind.shutdown("reboot")
		time.Sleep(3 * time.Second)
		r.logind.cancel()
		time.Sleep(time.Minute)
		s.expect(t, "stop@0s")
		if got, want := r.guard.Status().NotStarted, []shutdown.NotStarted{{Unit: "k3s.service", Reason: "no answer"}}; !slices.Equal(got, want) {
			t.Errorf("Status().NotStarted = %v, want %v", got, want)
		}
		// Even if this process ends.
		r.stop()
		r.logind.change(func() { r.logind.locks = map[int]bool{} })
		r.start()
		time.Sleep(time.Minute)
		s.breaks(false)
		time.Sleep(time.Minute)
		r.expect(shutdown.Armed, 1)
		if !s.runs || len(s.log) != 2 {
			t.Errorf("the service saw %q, want it started once", s.log)
		}
		if got := r.guard.Status().NotStarted; len(got) > 0 {
			t.Errorf("Status().NotStarted = %v once all run, want none", got)
		}
	})
}

// A shutdown that begins while the service does not start takes it over. Its end starts the service
// again.
func TestTheNextShutdownTakesOverAStoppedService(t *testing.T) {
	onHost(t, func(t *testing.T, r *rig) {
		s := r.orchestrated()
		s.breaks(true)
		r.usual()
		r.start()
		r.logind.shutdown("reboot")
		time.Sleep(3 * time.Second)
		r.logind.cancel()
		time.Sleep(time.Minute)
		r.logind.shutdown("reboot")
		time.Sleep(time.Second)
		if got := r.guard.Status().NotStarted; len(got) > 0 {
			t.Errorf("Status().NotStarted = %v while the host shuts down, want none", got)
		}
		s.breaks(false)
		time.Sleep(time.Minute)
		r.expect(shutdown.Released, 0)
		s.expect(t, "stop@0s")
		r.logind.cancel()
		time.Sleep(time.Minute)
		r.expect(shutdown.Armed, 1)
		if !s.runs {
			t.Error("the service is down after the second cancellation, want it started again")
		}
	})
}

func TestAManualDrainStopsNoService(t *testing.T) {
	onHost(t, func(t *testing.T, r *rig) {
		s := r.orchestrated()
		r.usual()
		r.start()
		if _, err := r.guard.Drain(t.Context(), journal.TriggerManualAll); err != nil {
			t.Fatal(err)
		}
		s.expect(t, "")
	})
}

// A manual drain settles the earlier one, but the services of that one are still started.
func TestAManualDrainKeepsPendingServices(t *testing.T) {
	onHost(t, func(t *testing.T, r *rig) {
		s := r.orchestrated()
		s.breaks(true)
		r.usual()
		r.start()
		r.logind.shutdown("reboot")
		time.Sleep(3 * time.Second)
		r.logind.cancel()
		time.Sleep(time.Minute)
		if _, err := r.guard.Drain(t.Context(), journal.TriggerManualAll); err != nil {
			t.Fatal(err)
		}
		r.stop()
		r.logind.change(func() { r.logind.locks = map[int]bool{} })
		r.start()
		s.breaks(false)
		time.Sleep(time.Minute)
		s.expectRestart(t)
	})
}

func TestAServiceIsStartedAgainAlsoOnceTheSettingIsGone(t *testing.T) {
	for name, after := range map[string]time.Duration{"while it ends": time.Second, "in a phase": 3 * time.Second} {
		t.Run(name, func(t *testing.T) {
			onHost(t, func(t *testing.T, r *rig) {
				s := r.orchestrated()
				r.usual()
				r.start()
				r.logind.shutdown("reboot")
				time.Sleep(after)
				r.stop()
				r.logind.change(func() { r.logind.locks = map[int]bool{} })
				r.options.First.Names = nil
				r.logind.change(func() { r.logind.preparing = false })
				r.start()
				time.Sleep(time.Minute)
				s.expectRestart(t)
			})
		})
	}
}

// Other services and containers do not wait for it.
func TestAServiceThatDoesNotStartBlocksNobody(t *testing.T) {
	onHost(t, func(t *testing.T, r *rig) {
		broken, s := &service{began: r.began, runs: true, broken: true}, r.orchestrated()
		var settled atomic.Int32
		r.options.Settled = func() { settled.Add(1) }
		r.serve(services{"broken.service": broken, "k3s.service": s})
		r.usual()
		r.start()
		r.logind.shutdown("reboot")
		time.Sleep(3 * time.Second)
		r.logind.cancel()
		time.Sleep(time.Minute)
		s.expectRestart(t)
		if settled.Load() == 0 {
			t.Error("the record of the drain changes, want it finished")
		}
		if pending := r.options.Journal.PendingServices(); len(pending) != 1 || pending[0].Name != "broken.service" {
			t.Errorf("Owed() = %+v, want broken.service", pending)
		}
		broken.breaks(false)
		time.Sleep(time.Minute)
		broken.expectRestart(t)
		if pending := r.options.Journal.PendingServices(); len(pending) > 0 {
			t.Errorf("Owed() = %+v, want none", pending)
		}
	})
}

// expectRestart checks that the service was stopped, and started again once.
func (s *service) expectRestart(t *testing.T) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.runs || len(s.log) != 2 || s.log[0] != "stop@0s" {
		t.Errorf("the service saw %q, want it stopped, and started once", s.log)
	}
}

// If the agent is killed then, the next one must know of the service.
func TestAServiceIsRecordedOnDiskBeforeItsStop(t *testing.T) {
	onHost(t, func(t *testing.T, r *rig) {
		s := r.orchestrated()
		var asked atomic.Bool
		s.asked = func() {
			asked.Store(true)
			data, err := os.ReadFile(r.path)
			if err != nil || !strings.Contains(string(data), "k3s.service") || !strings.Contains(string(data), `"name":"dns"`) {
				t.Errorf("on disk is %s, %v when the service is asked, want it and the pods", data, err)
			}
		}
		r.usual()
		r.start()
		r.logind.shutdown("reboot")
		time.Sleep(time.Minute)
		r.expect(shutdown.Released, 0)
		if !asked.Load() {
			t.Error("the service was not stopped")
		}
	})
}

// The time that an earlier process waited for services is not subtracted from the phases.
func TestPhasesKeepTheirTimeAfterARestartOfTheAgent(t *testing.T) {
	onHost(t, func(t *testing.T, r *rig) {
		s := r.orchestrated()
		r.pod("web", 0, runtimetest.ContainerSpec{IgnoresTERM: true})
		r.start()
		r.logind.shutdown("reboot")
		time.Sleep(time.Second)
		r.stop()
		time.Sleep(time.Second)
		r.start()
		time.Sleep(time.Minute)
		s.expect(t, "stop@0s")
		r.expectSignals("web", "TERM@2s KILL@22s")
	})
}
