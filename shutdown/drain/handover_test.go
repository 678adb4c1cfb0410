package drain_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/runtimetest"
	"hostler.io/hostler/shutdown/drain"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/shutdown/plan"
)

// endAndGoOn ends the draining process at each of these times, counted from its start. When between
// returns, another process continues.
func (w *world) endAndGoOn(between func(), ends ...time.Duration) *journal.Record {
	w.t.Helper()
	for _, at := range ends {
		ctx, end := context.WithCancel(w.t.Context())
		time.AfterFunc(at, end)
		d := w.drain()
		d.Run(ctx)
		<-d.Idle()
		between()
		w.options.Roster = &drain.Roster{Runtime: w.roster.Runtime}
		w.options.Record, w.options.Start = w.published[len(w.published)-1].Clone(), w.began
	}
	r, _ := w.run(w.t.Context())
	return r
}

// The process may end in the moment in which it requests the stop of containers.
func TestAStopRequestInProgressWhenTheProcessEndsIsNotRepeated(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("web", 0, runtimetest.ContainerSpec{EndsAfter: 3 * time.Second}, runtimetest.ContainerSpec{IgnoresTERM: true})
		w.fake.Inject(runtimetest.StopContainer, runtimetest.Fault{Delay: 300 * time.Millisecond, Times: 2})
		var ended time.Duration
		r := w.endAndGoOn(func() { ended = time.Since(w.began) }, 100*time.Millisecond)
		w.expect(r, true, map[string]journal.Outcome{"web": journal.Killed})
		w.expectSignals("web0", "TERM@300ms")
		w.expectSignals("web1", "TERM@300ms KILL@20s")
		w.expectTook(ended, time.Second)
	})
}

// The record has the time when a container ended, not when a process noticed.
func TestTheEndOfAContainerBetweenTwoProcessesIsRecorded(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("web", 0, runtimetest.ContainerSpec{EndsAfter: 3 * time.Second})
		r := w.endAndGoOn(func() { time.Sleep(6 * time.Second) }, 2*time.Second)
		w.expect(r, true, map[string]journal.Outcome{"web": journal.Stopped})
		if took := r.Pods[0].FinishedAt.Sub(r.Pods[0].StartedAt); took != 3*time.Second {
			t.Errorf("the record says that web took %v, want 3s", took)
		}
	})
}

// A call that hangs does not delay the end of the process.
func TestARuntimeThatHangsBlocksNoProcessThatEnds(t *testing.T) {
	for at, want := range map[time.Duration]time.Duration{100 * time.Millisecond: time.Second, 5 * time.Second: 5 * time.Second} {
		inWorld(t, func(t *testing.T, w *world) {
			w.pod("web", 0, runtimetest.ContainerSpec{EndsAfter: time.Second})
			w.fake.Inject(runtimetest.StopContainer, runtimetest.Fault{Hang: true, Times: 1})
			var ended time.Duration
			r := w.endAndGoOn(func() { ended = time.Since(w.began) }, at)
			w.expect(r, true, map[string]journal.Outcome{"web": journal.Killed})
			w.expectSignals("web0", "KILL@20s")
			w.expectTook(ended, want)
		})
	}
}

// A runtime that restarts together with hostler has not sent a signal.
func TestAFailedStopRequestIsRepeatedByTheNextProcess(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("web", 0, runtimetest.ContainerSpec{EndsAfter: time.Second}, runtimetest.ContainerSpec{EndsAfter: 4 * time.Second})
		down := w.fake.Inject(runtimetest.StopContainer, runtimetest.Fault{Err: runtime.ErrUnavailable, Subject: "web0"})
		r := w.endAndGoOn(func() {
			time.Sleep(time.Second)
			down.Release()
		}, 2*time.Second)
		w.expect(r, true, map[string]journal.Outcome{"web": journal.Stopped})
		w.expectSignals("web0", "TERM@3s")
		w.expectSignals("web1", "TERM@0s")
	})
}

// If the second process requested the stop, the third one does not repeat it, and waits the full
// grace period.
func TestALateStopRequestIsNotRepeated(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("web", 0, runtimetest.ContainerSpec{IgnoresTERM: true, Labels: grace("10s")}, runtimetest.ContainerSpec{EndsAfter: time.Second})
		down := w.fake.Inject(runtimetest.StopContainer, runtimetest.Fault{Err: runtime.ErrUnavailable, Subject: "web0"})
		r := w.endAndGoOn(down.Release, 3*time.Second, 3*time.Second)
		w.expect(r, true, map[string]journal.Outcome{"web": journal.Killed})
		w.expectSignals("web0", "TERM@3s KILL@13s")
		w.expectSignals("web1", "TERM@0s")
		if pending := r.Pods[0].Asked; len(pending) > 0 {
			t.Errorf("the record says of %v that they can be started again, want that of none", pending)
		}
	})
}

// The same for a container that is started in a pod that is being stopped.
func TestTheStopOfALateContainerIsNotRepeated(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("web", 0, runtimetest.ContainerSpec{EndsAfter: 15 * time.Second, Labels: grace("60s")})
		time.AfterFunc(time.Second, func() {
			w.fake.AddContainer("web", runtimetest.ContainerSpec{ID: "late", Name: "late", Image: "image", IgnoresTERM: true, Labels: grace("10s")})
		})
		between := sync.OnceFunc(func() {
			w.fake.AddContainer("web", runtimetest.ContainerSpec{ID: "later", Name: "later", Image: "image", EndsAfter: 4 * time.Second})
		})
		r := w.endAndGoOn(between, 5*time.Second, 2*time.Second)
		w.expect(r, true, map[string]journal.Outcome{"web": journal.Killed})
		w.expectSignals("web0", "TERM@0s")
		w.expectSignals("later", "TERM@5s")
		w.expectSignals("late", "TERM@2s KILL@12s")
	})
}

// If a container cannot be stopped, the other containers of its pod are stopped before the sandbox
// is torn down.
func TestAWaitingContainerIsStoppedByTheNextProcess(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("web", 0)
		w.fake.Inject(runtimetest.StopContainer, runtimetest.Fault{Hang: true, Subject: "web0", Times: 1})
		time.AfterFunc(17500*time.Millisecond, func() {
			w.fake.AddContainer("web", runtimetest.ContainerSpec{ID: "late", Name: "late", Image: "image", EndsAfter: 6 * time.Second, Labels: grace("60s")})
		})
		r := w.endAndGoOn(func() {}, 23*time.Second)
		w.expect(r, true, map[string]journal.Outcome{"web": journal.Killed})
		w.expectSignals("late", "TERM@20.25s")
		w.expectSignals("web0", "KILL@23s")
	})
}

// A pod whose sandbox was being torn down as the last resort has no final outcome in the record.
func TestATeardownInProgressIsRepeatedByTheNextProcess(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("web", 0, runtimetest.ContainerSpec{IgnoresTERM: true})
		w.pod("dns", plan.CriticalPriority, runtimetest.ContainerSpec{EndsAfter: 8 * time.Second})
		w.fake.Inject(runtimetest.StopContainer, runtimetest.Fault{Hang: true, Subject: "web0", Times: 1})
		w.fake.Inject(runtimetest.StopPod, runtimetest.Fault{Delay: 5 * time.Second, Subject: "web", Times: 1})
		r := w.endAndGoOn(func() {}, 23*time.Second)
		w.expect(r, true, map[string]journal.Outcome{"web": journal.Killed, "dns": journal.Stopped})
		w.expectSignals("web0", "KILL@23s")
		w.expectSignals("dns0", "TERM@20.25s")
	})
}

// If the phase is over when the next process starts, containers without a stop request must not be
// killed. That another container of the pod had one does not matter.
func TestAFailedStopRequestIsRepeatedInTheNextPhase(t *testing.T) {
	for name, beside := range map[string][]runtimetest.ContainerSpec{"alone": nil, "beside one that was asked": {{IgnoresTERM: true}}} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.pod("web", 0, append([]runtimetest.ContainerSpec{{EndsAfter: time.Second}}, beside...)...)
				down := w.fake.Inject(runtimetest.StopContainer, runtimetest.Fault{Err: runtime.ErrUnavailable, Subject: "web0"})
				r := w.endAndGoOn(func() {
					time.Sleep(6 * time.Second)
					down.Release()
				}, 15*time.Second)
				w.expectSignals("web0", "TERM@21s")
				if beside == nil {
					w.expect(r, true, map[string]journal.Outcome{"web": journal.Stopped})
					return
				}
				w.expect(r, true, map[string]journal.Outcome{"web": journal.Killed})
				w.expectSignals("web1", "TERM@0s KILL@21s")
			})
		})
	}
}

// A runtime that is slow to begin with the call has not sent a signal.
func TestASlowRuntimeHasSentNoSignal(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("web", 0, runtimetest.ContainerSpec{EndsAfter: time.Second})
		down := w.fake.Inject(runtimetest.StopContainer, runtimetest.Fault{Err: runtime.ErrUnavailable})
		w.fake.Inject(runtimetest.StopContainer, runtimetest.Fault{Delay: 3 * time.Second, Err: fmt.Errorf("%w: %w", runtime.ErrUnavailable, context.DeadlineExceeded), Times: 1})
		r := w.endAndGoOn(down.Release, 3500*time.Millisecond)
		w.expect(r, true, map[string]journal.Outcome{"web": journal.Stopped})
		w.expectSignals("web0", "TERM@3.5s")
	})
}

// A runtime may have sent the signal before it stopped.
func TestAStopRequestBeforeTheRuntimeStoppedIsNotRepeated(t *testing.T) {
	for _, at := range []time.Duration{300 * time.Millisecond, 5 * time.Second} {
		inWorld(t, func(t *testing.T, w *world) {
			w.pod("web", 0, runtimetest.ContainerSpec{IgnoresTERM: true})
			w.roster.Runtime = leaver{w.fake, w.began.Add(at), w.began.Add(at + 2*time.Second)}
			r := w.endAndGoOn(func() { time.Sleep(2 * time.Second) }, at+500*time.Millisecond)
			w.expect(r, true, map[string]journal.Outcome{"web": journal.Killed})
			w.expectSignals("web0", "TERM@0s KILL@20s")
		})
	}
}

// leaver is a runtime that does not answer for a while.
type leaver struct {
	*runtimetest.Fake
	from, to time.Time
}

func (l leaver) StopContainer(ctx context.Context, c runtime.Container, grace time.Duration) error {
	if now := time.Now(); now.Before(l.from) {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, l.from)
		defer cancel()
	} else if now.Before(l.to) {
		return runtime.ErrUnavailable
	}
	err := l.Fake.StopContainer(ctx, c, grace)
	if ctx.Err() != nil && !time.Now().Before(l.from) {
		return runtime.ErrLost
	}
	return err
}

// A list is older than the stops that follow from it. Containers that were started since had no
// stop request.
func TestAContainerMissingInTheListIsStoppedByTheNextProcess(t *testing.T) {
	for name, brief := range map[string]bool{"in time": false, "too late for the phase": true} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.roster.Runtime = snapshots{w.fake} // from 50 ms ago
				ends := time.Second
				if brief {
					w.options.Phases = []plan.PhaseSpec{{Name: "a", Grace: 3 * time.Second}, {Name: "b", Priority: 10, Grace: 10 * time.Second}}
					ends = 2500 * time.Millisecond
				}
				w.pod("web", 0, runtimetest.ContainerSpec{EndsAfter: 4 * time.Second, Labels: grace("60s")})
				time.AfterFunc(20*time.Millisecond, func() {
					w.fake.AddContainer("web", runtimetest.ContainerSpec{ID: "late", Name: "late", Image: "image", EndsAfter: time.Second, Labels: grace("60s")})
				})
				w.endAndGoOn(func() {}, ends)
				if got := w.signals("late"); !strings.HasPrefix(got, "TERM@") || strings.Contains(got, " ") {
					t.Errorf("the new container got %q, want the stop signal once", got)
				}
			})
		})
	}
}

// The same for a container that Docker starts again, whenever it was created.
func TestAContainerStartedBetweenTwoProcessesIsStopped(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.asDocker()
		long := time.Now().Add(-time.Hour)
		w.pod("web", 0, runtimetest.ContainerSpec{EndsAfter: 10 * time.Second, Labels: grace("60s"), Restart: runtime.RestartUnlessStopped, CreatedAt: long},
			runtimetest.ContainerSpec{EndsAfter: time.Second, Labels: grace("5s"), Restart: runtime.RestartUnlessStopped, CreatedAt: long})
		w.fake.Exit("web1", 0)
		w.endAndGoOn(func() { w.start("web1") }, 3*time.Second)
		w.expectSignals("web1", "TERM@3s")
	})
}

// A container that an earlier process stopped stays stopped if only other containers have recorded
// requests since.
func TestARecordWithoutContainersIsContinued(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("web", 0, runtimetest.ContainerSpec{IgnoresTERM: true, Labels: grace("60s")})
		forget := sync.OnceFunc(func() {
			r := w.published[len(w.published)-1]
			for i := range r.Pods {
				r.Pods[i].Late = nil
			}
			time.Sleep(100 * time.Millisecond)
			w.fake.AddContainer("web", runtimetest.ContainerSpec{ID: "late", Name: "late", Image: "image", EndsAfter: time.Second})
		})
		w.endAndGoOn(forget, time.Second, 3*time.Second)
		w.expectSignals("web0", "TERM@0s KILL@20s")
	})
}

// A container that crashed before its stop was requested was not killed by the drain.
func TestAContainerThatCrashedBeforeItsStopWasNotKilled(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("web", 0, runtimetest.ContainerSpec{EndsAfter: 3 * time.Second})
		w.pod("dns", plan.CriticalPriority, runtimetest.ContainerSpec{EndsAfter: time.Second, Labels: grace("60s")}, runtimetest.ContainerSpec{})
		time.AfterFunc(time.Second, func() { w.fake.Exit("dns1", 137) }) // as if out of memory
		r, _ := w.run(t.Context())
		w.expect(r, true, map[string]journal.Outcome{"web": journal.Stopped, "dns": journal.Stopped})
	})
}

// For containers that one process stopped, the next one uses what their runtime reports.
func TestAPodWithAContainerThatAnEarlierProcessKilledIsKilled(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("web", 0, runtimetest.ContainerSpec{IgnoresTERM: true, Labels: grace("2s")}, runtimetest.ContainerSpec{EndsAfter: 6 * time.Second})
		r := w.endAndGoOn(func() {}, 4*time.Second)
		w.expect(r, true, map[string]journal.Outcome{"web": journal.Killed})
	})
}

// If the second process requested the stop of a container that waited for others, the third one
// does not repeat it.
func TestTheStopOfAWaitingSandboxContainerIsNotRepeated(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("shop", 0, runtimetest.ContainerSpec{EndsAfter: time.Second, StopsBefore: []string{"shop1"}}, runtimetest.ContainerSpec{IgnoresTERM: true, Labels: grace("8s")})
		w.endAndGoOn(func() { time.Sleep(time.Second) }, 500*time.Millisecond, 2*time.Second)
		w.expectSignals("shop1", "TERM@2s KILL@10s")
	})
}
