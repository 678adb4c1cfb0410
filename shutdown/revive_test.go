package shutdown_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/shutdown/journal"
)

// service is one that is stopped before the pods, and takes two seconds to end.
type service struct {
	mu     sync.Mutex
	began  time.Time
	runs   bool
	broken bool     // it cannot be started
	log    []string // what was done to it, and when
}

// orchestrated has a service stop before the pods.
func (r *rig) orchestrated() *service {
	s := &service{began: r.began, runs: true}
	r.options.First = &shutdown.First{
		Names:   []string{"k3s.service"},
		Stop:    s.stop,
		Start:   s.start,
		Adopt:   func(context.Context, []runtime.Pod, []journal.PodRecord) {},
		Release: func() {},
	}
	return s
}

func (s *service) note(what string) {
	s.log = append(s.log, fmt.Sprint(what, "@", time.Since(s.began)))
}

func (s *service) stop(ctx context.Context, _ string) (ran bool, err error) {
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
		if got, want := r.guard.Status().InhibitDelayNeeded.Duration, 46*time.Second; got != want {
			t.Errorf("InhibitDelayNeeded = %v, want %v with what the service may take", got, want)
		}
		r.logind.shutdown("reboot")
		time.Sleep(time.Minute)
		r.expect(shutdown.Released, 0)
		r.expectSignals("web", "TERM@2s")
		r.expectSignals("dns", "TERM@4s")
		r.stop()
		r.boot, r.logind.preparing = "two", false
		r.start()
		time.Sleep(time.Minute)
		r.expect(shutdown.Armed, 1)
		s.expect(t, "stop@0s")
		if last := r.guard.Status().Last; last == nil || last.First() != "k3s.service stopped first" {
			t.Errorf("Last = %+v, want it to tell what was stopped first", last)
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
					t.Error("the story of the drain goes on with the service started, want it at its end")
				}
				s.mu.Lock()
				if len(s.log) != 2 || s.log[0] != "stop@0s" || !strings.HasPrefix(s.log[1], "start@") {
					t.Errorf("the service saw %q, want one stop and one start", s.log)
				}
				s.mu.Unlock()
				if owed := r.options.Journal.Owed(); len(owed) > 0 {
					t.Errorf("Owed() = %+v once it is started, want none", owed)
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
		// Whatever becomes of this process.
		r.stop()
		r.logind.locks = map[int]bool{}
		r.start()
		time.Sleep(time.Minute)
		s.breaks(false)
		time.Sleep(time.Minute)
		r.expect(shutdown.Armed, 1)
		if !s.runs || len(s.log) != 2 {
			t.Errorf("the service saw %q, want it started once", s.log)
		}
	})
}

// A shutdown that is announced while it does not start takes it over, and gives it back.
func TestTheNextShutdownKnowsOfAServiceThatIsDown(t *testing.T) {
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

func TestAPersonsDrainStopsNoService(t *testing.T) {
	onHost(t, func(t *testing.T, r *rig) {
		s := r.orchestrated()
		r.usual()
		r.start()
		if _, err := r.guard.Drain(t.Context(), journal.TriggerPersonAll); err != nil {
			t.Fatal(err)
		}
		s.expect(t, "")
	})
}
