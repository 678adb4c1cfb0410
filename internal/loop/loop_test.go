package loop_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"hostler.io/hostler/internal/logtest"
	"hostler.io/hostler/internal/loop"
)

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

// supervised runs the loop in the background of a synctest bubble until the test ends.
func supervised(t *testing.T, l *loop.Loop, log *slog.Logger) {
	t.Helper()
	var done sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	done.Go(func() { l.Supervise(ctx, log) })
	t.Cleanup(func() { cancel(); done.Wait() })
}

func TestALoopThatEndsIsRestartedAfterGrowingPauses(t *testing.T) {
	for name, end := range map[string]func() error{
		"by an error": func() error { return errors.New("lost the runtime") },
		"by itself":   func() error { return nil },
		"by a panic":  func() error { panic("index out of range") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var starts []time.Time
				l := loop.New("image-gc", 0, func(context.Context) error { starts = append(starts, time.Now()); return end() })
				supervised(t, l, discard())
				time.Sleep(5 * time.Minute)
				synctest.Wait()
				if len(starts) < 8 {
					t.Fatalf("the loop was started %d times in 5 minutes, want it to continue", len(starts))
				}
				want := time.Second
				for i := range starts[1:] {
					// A pause has up to a tenth of jitter.
					if pause := starts[i+1].Sub(starts[i]); pause < want || pause > want*11/10 {
						t.Errorf("pause %d = %v, want %v and a little", i+1, pause, want)
					}
					want = min(2*want, time.Minute)
				}
				if s := l.Health(time.Now()); s.Healthy || s.LastError == "" || s.Restarts != len(starts) {
					t.Errorf("Health() = %+v, want a loop with an error, restarted %d times", s, len(starts))
				}
			})
		})
	}
}

func TestALoopThatRanSteadilyIsRestartedSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var starts []time.Time
		l := loop.New("lease", 0, func(context.Context) error {
			starts = append(starts, time.Now())
			time.Sleep(2 * time.Minute)
			return errors.New("gone")
		})
		supervised(t, l, discard())
		time.Sleep(30 * time.Minute)
		synctest.Wait()
		for i := range starts[1:] {
			if pause := starts[i+1].Sub(starts[i]) - 2*time.Minute; pause > 1100*time.Millisecond {
				t.Errorf("pause %d = %v, want the first one each time", i+1, pause)
			}
		}
	})
}

// A port may be in use for weeks.
func TestWhyALoopEndsIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logtest.Book
		var cause atomic.Value
		cause.Store("port is taken")
		l := loop.New("metrics", 0, func(ctx context.Context) error {
			if text := cause.Load().(string); text != "" {
				return errors.New(text)
			}
			<-ctx.Done()
			return ctx.Err()
		})
		supervised(t, l, log.Logger())
		check := func(what string, ended, recovered int) {
			t.Helper()
			time.Sleep(10 * time.Minute)
			synctest.Wait()
			if log.Count("restarting loop") != ended || log.Count("loop stable again") != recovered {
				t.Errorf("%s: log = %s, want %d ends and %d recoveries", what, &log, ended, recovered)
			}
		}
		check("one cause", 1, 0)
		cause.Store("address is gone")
		check("another", 2, 0)
		cause.Store("")
		check("none any more", 2, 1)
	})
}

// `hostler status` shows one line of a panic; the stack is only in the log.
func TestAPanicIsOneLineAndItsStackIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logtest.Book
		l := loop.New("image-gc", 0, func(context.Context) error { panic("index out of range") })
		supervised(t, l, log.Logger())
		synctest.Wait()
		if got := l.Health(time.Now()).LastError; got != "panic: index out of range" {
			t.Errorf("LastError = %q, want the panic alone", got)
		}
		if !strings.Contains(log.String(), "loop_test.go") {
			t.Errorf("log = %s, want the stack in it", &log)
		}
	})
}

func TestOneFailingLoopStopsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rounds := 0
		failing := loop.New("image-gc", 0, func(context.Context) error { panic("no") })
		stuck := loop.New("status", time.Minute, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		var lease *loop.Loop
		lease = loop.New("lease", 40*time.Second, func(ctx context.Context) error {
			for ctx.Err() == nil {
				rounds++
				lease.Heartbeat(nil)
				time.Sleep(10 * time.Second)
			}
			return ctx.Err()
		})
		for _, l := range []*loop.Loop{failing, stuck, lease} {
			supervised(t, l, discard())
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if rounds < 60 || !lease.Health(time.Now()).Healthy || lease.Health(time.Now()).Restarts != 0 {
			t.Errorf("the lease was renewed %d times in 10 minutes, %+v, want it unmoved", rounds, lease.Health(time.Now()))
		}
		set := loop.Set{failing, stuck, lease}
		if err := set.Healthy(); err == nil || err.Error() != "no progress: status" {
			t.Errorf("Healthy() = %v, want the loop that is stuck and none that is started again", err)
		}
	})
}

func TestALoopIsStuckAfterItsPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := loop.New("status", time.Minute, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		patient := loop.New("events", 0, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		set := loop.Set{l, patient}
		if err := set.Healthy(); err != nil {
			t.Errorf("Healthy() before the start = %v, want nil", err)
		}
		supervised(t, l, discard())
		supervised(t, patient, discard())
		steps := []struct {
			what  string
			do    func()
			after time.Duration
			want  bool // stuck
		}{
			{"nothing", func() {}, 59 * time.Second, false},
			{"still nothing", func() {}, 2 * time.Second, true},
			{"a heartbeat with a failure", func() { l.Heartbeat(errors.New("full")) }, 59 * time.Second, false},
			{"a good beat", func() { l.Heartbeat(nil) }, 61 * time.Second, true},
			{"a rest, for another has the job", func() { l.Pause() }, time.Hour, false},
			{"a round that a person requested meanwhile", func() { l.Heartbeat(nil) }, time.Hour, false},
			{"the job is owned again", func() { l.Wake() }, 59 * time.Second, false},
			{"and nothing came of it", func() {}, 2 * time.Second, true},
		}
		for _, s := range steps {
			s.do()
			time.Sleep(s.after)
			if got := set.Healthy() != nil; got != s.want {
				t.Errorf("after %s and %v: stuck = %v, want %v", s.what, s.after, got, s.want)
			}
		}
		if s := l.Health(time.Now()); s.Healthy || !strings.HasPrefix(s.LastError, "no progress since 2000-01-01T") {
			t.Errorf("Health() of a stuck loop = %+v, want since when", s)
		}
		if s := patient.Health(time.Now()); !s.Healthy {
			t.Errorf("Health() of a loop that waits for events = %+v, want it healthy", s)
		}
	})
}

func TestAShorterPatienceCountsFromNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := loop.New("image-gc", 3*time.Hour, nil)
		l.Heartbeat(nil)
		time.Sleep(2 * time.Hour)
		l.Allow(time.Hour)
		if l.Stuck(time.Now()) || !l.Stuck(time.Now().Add(61*time.Minute)) {
			t.Errorf("Stuck() = %v now, %v in an hour, want only the latter", l.Stuck(time.Now()), l.Stuck(time.Now().Add(61*time.Minute)))
		}
	})
}

func TestAnEagerLoopIsRestartedWithinItsPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		starts := []time.Time{}
		l := loop.New("nodes", 0, func(context.Context) error {
			starts = append(starts, time.Now())
			return errors.New("no answer")
		}).Eager(5 * time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		l.Supervise(ctx, discard())
		for i := 1; i < len(starts); i++ {
			if pause := starts[i].Sub(starts[i-1]); pause > 6*time.Second {
				t.Errorf("pause %d = %v, want at most 5 s and a tenth", i, pause)
			}
		}
		if len(starts) < 100 {
			t.Errorf("starts in ten minutes = %d, want at least 100", len(starts))
		}
	})
}
