package agent

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/agent/config"
)

// supervised runs the loop for the time of the test.
func supervised(t *testing.T, l *loop) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		l.supervise(ctx, slog.New(slog.DiscardHandler))
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
}

func TestALoopThatEndsIsStartedAgainWithBackOff(t *testing.T) {
	for name, run := range map[string]func(context.Context) error{
		"it panics":        func(context.Context) error { panic("a fault of ours") },
		"it fails":         func(context.Context) error { return errors.New("no luck") },
		"it ends in peace": func(context.Context) error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var starts atomic.Int32
				l := &loop{name: "work", run: func(ctx context.Context) error {
					if starts.Add(1) < 9 {
						return run(ctx)
					}
					<-ctx.Done()
					return ctx.Err()
				}}
				supervised(t, l)
				time.Sleep(90 * time.Second) // 1+2+4+8+16+32 s, and a tenth more at most
				synctest.Wait()
				if n := starts.Load(); n != 7 {
					t.Errorf("started %d times in 90 s, want 7", n)
				}
				if s := l.snapshot(time.Now()); s.Healthy || s.LastError == "" || s.Restarts != 7 {
					t.Errorf("snapshot() = %+v, want it unhealthy, saying why", s)
				}
				time.Sleep(time.Hour)
				synctest.Wait()
				if n := starts.Load(); n != 9 {
					t.Errorf("started %d times in the end, want 9, the last time for good", n)
				}
			})
		})
	}
}

// handedOver is an agent with a lease loop, and who has the job.
func handedOver(t *testing.T, run func(context.Context) error) (a *Agent, l *loop, kubelet *atomic.Bool) {
	t.Helper()
	kubelet = &atomic.Bool{}
	a = &Agent{log: slog.New(slog.DiscardHandler)}
	a.owners = newOwners(config.Config{}, func(context.Context) map[job]api.Owner {
		if kubelet.Load() {
			return map[job]api.Owner{jobLease: {Name: api.OwnerKubelet, Evidence: "seen"}}
		}
		return nil
	})
	l = &loop{name: "lease", patience: time.Minute}
	l.run = a.whileMine(l.name, jobLease, run)
	a.loops = []*loop{l}
	a.owners.refresh(t.Context())
	return a, l, kubelet
}

func TestALoopRunsWhileItsJobIsHostlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running atomic.Int32
		a, l, kubelet := handedOver(t, func(ctx context.Context) error {
			running.Add(1)
			<-ctx.Done()
			running.Add(-1)
			return ctx.Err()
		})
		supervised(t, l)
		for range 3 {
			synctest.Wait()
			if running.Load() != 1 {
				t.Errorf("%d runs of the loop, want one while the job is hostler's", running.Load())
			}
			kubelet.Store(true)
			a.owners.refresh(t.Context())
			synctest.Wait()
			if running.Load() != 0 {
				t.Errorf("%d runs of the loop, want none while the job is a kubelet's", running.Load())
			}
			time.Sleep(time.Hour)
			if s := l.snapshot(time.Now()); !s.Healthy || s.Restarts != 0 {
				t.Errorf("snapshot() = %+v of a loop that rests, want it healthy", s)
			}
			kubelet.Store(false)
			a.owners.refresh(t.Context())
		}
	})
}

func TestALoopThatHangsAfterARestIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, l, kubelet := handedOver(t, func(ctx context.Context) error {
			<-ctx.Done() // without a beat
			return ctx.Err()
		})
		kubelet.Store(true)
		a.owners.refresh(t.Context())
		supervised(t, l)
		time.Sleep(time.Hour)
		kubelet.Store(false)
		a.owners.refresh(t.Context())
		time.Sleep(30 * time.Second)
		if err := a.Healthy(); err != nil {
			t.Errorf("Healthy() = %v within the loop's patience, want nil", err)
		}
		time.Sleep(time.Minute)
		if err := a.Healthy(); err == nil || !strings.Contains(err.Error(), "lease") {
			t.Errorf("Healthy() = %v of a loop that hangs, want it named", err)
		}
	})
}
