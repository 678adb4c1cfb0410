package loop_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"hostler.io/hostler/internal/loop"
)

func TestALoopIsPausedWhileItsGateIsShut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := loop.NewGate("not yet")
		var running atomic.Int32
		var l *loop.Loop
		l = loop.New("lease", time.Minute, func(ctx context.Context) error {
			return gate.While(ctx, l, func(ctx context.Context) error {
				running.Add(1)
				defer running.Add(-1)
				<-ctx.Done()
				time.Sleep(time.Second) // the run takes a second to end
				return ctx.Err()
			})
		})
		supervised(t, l, discard())
		for _, step := range []struct {
			reason  string
			running int32
		}{{"not yet", 0}, {"", 1}, {"gone", 0}, {"gone for good", 0}, {"", 1}} {
			gate.Set(step.reason)
			if step.reason == "gone" {
				if err := gate.Idle(t.Context()); err != nil || running.Load() != 0 {
					t.Errorf("Idle() = %v with %d running, want it waited for", err, running.Load())
				}
			}
			time.Sleep(30 * time.Second)
			if got := running.Load(); got != step.running || gate.Reason() != step.reason {
				t.Errorf("shut for %q: %d run, want %d", gate.Reason(), got, step.running)
			}
			time.Sleep(time.Hour)
			if got, want := l.Stuck(time.Now()), step.running > 0; got != want {
				t.Errorf("shut for %q: stuck = %v, want %v, because only a running loop needs heartbeats", step.reason, got, want)
			}
		}
		gate.Set("for a moment")
		gate.Set("")
		time.Sleep(30 * time.Second)
		if h := l.Health(time.Now()); h.Restarts != 0 || running.Load() != 1 {
			t.Errorf("Health() = %+v with %d running, want no restart", h, running.Load())
		}
		gate.Set("gone")
		hurried, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if err := gate.Idle(hurried); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "loops pause") {
			t.Errorf("Idle() = %v, want that it waited for the loops no longer", err)
		}
	})
}

func TestARunThatEndsByItselfBehindAGateIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		gate, l := loop.NewGate(""), loop.New("lease", 0, nil)
		if err := gate.While(t.Context(), l, func(context.Context) error { return broken }); !errors.Is(err, broken) {
			t.Errorf("While() = %v, want %v", err, broken)
		}
		if err := gate.Idle(t.Context()); err != nil {
			t.Errorf("Idle() after it = %v, want nothing to wait for", err)
		}
		func() {
			defer func() { _ = recover() }() // as Supervise does
			_ = gate.While(t.Context(), l, func(context.Context) error { panic("no") })
		}()
		if err := gate.Idle(t.Context()); err != nil {
			t.Errorf("Idle() after a panic = %v, want nothing to wait for", err)
		}
	})
}
