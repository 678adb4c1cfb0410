package shutdown_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/shutdown/journal"
)

func (s *service) fares(context.Context, string, time.Time) (starting bool, failed string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unreachable {
		return false, "", errors.New("no answer")
	}
	return s.starts, s.failed, nil
}

func (s *service) fails(result string) { s.is(false, result, false) }

func (s *service) is(starting bool, failed string, unreachable bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.starts, s.failed, s.unreachable = starting, failed, unreachable
}

func (s *service) expectState(t *testing.T, r *rig, when, failed string) {
	t.Helper()
	var want []shutdown.NotStarted
	if failed != "" {
		want = []shutdown.NotStarted{{Unit: "k3s.service", Reason: failed, Failed: true}}
	}
	if got := r.guard.Status().NotStarted; !slices.Equal(got, want) {
		t.Errorf("%s: Status().NotStarted = %v, want %v", when, got, want)
	}
}

// systemd accepted the start, and users must learn how it ended.
func TestAServiceThatFailsOnceItIsStarted(t *testing.T) {
	onHost(t, func(t *testing.T, r *rig) {
		s := r.orchestrated()
		s.is(true, "", false)
		r.usual()
		r.start()
		callOff := func() {
			r.logind.shutdown("reboot")
			time.Sleep(3 * time.Second)
			r.logind.cancel()
			time.Sleep(5 * time.Minute)
		}
		callOff()
		s.expectState(t, r, "while it starts", "")
		s.fails("timeout")
		time.Sleep(time.Minute)
		s.expectState(t, r, "once it has failed", "timeout")
		s.is(false, "", true)
		time.Sleep(time.Minute)
		s.expectState(t, r, "without a signal of systemd", "timeout")
		s.fails("exit-code")
		time.Sleep(time.Hour)
		s.expectState(t, r, "an hour later", "exit-code")
		if len(s.log) != 2 {
			t.Errorf("the service saw %q, want it started once", s.log)
		}
		s.fails("")
		time.Sleep(time.Minute)
		s.fails("signal")
		time.Sleep(time.Minute)
		s.expectState(t, r, "once it has run for half a minute", "") // this failure no longer belongs to the shutdown

		callOff()
		s.expectState(t, r, "after the next one", "signal")
		if _, err := r.guard.Drain(t.Context(), journal.TriggerManualAll); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		s.expectState(t, r, "once an operator drained the host", "")

		callOff()
		r.logind.shutdown("reboot")
		time.Sleep(time.Second)
		s.expectState(t, r, "while the host goes down", "")
		time.Sleep(time.Minute)
		r.expect(shutdown.Released, 0)
	})
}
