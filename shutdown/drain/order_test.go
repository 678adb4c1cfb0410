package drain_test

import (
	"context"
	"fmt"
	"maps"
	"testing"
	"time"

	"hostler.io/hostler/internal/bounded"
	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/runtimetest"
	"hostler.io/hostler/shutdown/drain"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/shutdown/plan"
)

func TestDependentsStopFirst(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("shop", 0,
			runtimetest.ContainerSpec{EndsAfter: 2 * time.Second, StopsBefore: []string{"shop1"}},
			runtimetest.ContainerSpec{EndsAfter: 3 * time.Second, StopsBefore: []string{"shop2", "no such container"}},
			runtimetest.ContainerSpec{EndsAfter: time.Second})
		w.pod("alone", 0, runtimetest.ContainerSpec{EndsAfter: time.Second})
		r, took := w.run(t.Context())
		w.expect(r, true, map[string]journal.Outcome{"shop": journal.Stopped, "alone": journal.Stopped})
		w.expectSignals("shop0", "TERM@0s")
		w.expectSignals("shop1", "TERM@2s")
		w.expectSignals("shop2", "TERM@5s")
		w.expectSignals("alone0", "TERM@0s")
		w.expectTook(took, 6*time.Second)
	})
}

// Containers that share a network are separate pods if no project groups them.
func TestDependentsOfOtherPodsStopFirst(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("agent", plan.CriticalPriority, runtimetest.ContainerSpec{EndsAfter: time.Second, StopsBefore: []string{"socket0"}})
		w.pod("socket", 0, runtimetest.ContainerSpec{EndsAfter: time.Second}) // it becomes as critical
		w.pod("vpn", 0, runtimetest.ContainerSpec{EndsAfter: time.Second})
		w.pod("web", 0, runtimetest.ContainerSpec{EndsAfter: 2 * time.Second, StopsBefore: []string{"vpn0"}})
		w.pod("log", 0, runtimetest.ContainerSpec{EndsAfter: 3 * time.Second, StopsBefore: []string{"web0"}})
		r, took := w.run(t.Context())
		stopped := journal.Stopped
		w.expect(r, true, map[string]journal.Outcome{"agent": stopped, "socket": stopped, "vpn": stopped, "web": stopped, "log": stopped})
		w.expectSignals("log0", "TERM@0s")
		w.expectSignals("web0", "TERM@3s")
		w.expectSignals("vpn0", "TERM@5s")
		w.expectSignals("agent0", "TERM@6s")
		w.expectSignals("socket0", "TERM@7s")
		w.expectTook(took, 8*time.Second)
	})
}

// The record of a pod begins at its first stop signal, with the grace period that was left then.
func TestTheRecordOfAPodThatWaitedBeginsAtItsSignal(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("sidecar", 0, runtimetest.ContainerSpec{EndsAfter: 5 * time.Second, StopsBefore: []string{"cache0"}})
		w.pod("cache", 0, runtimetest.ContainerSpec{IgnoresTERM: true})
		w.pod("shop", 0,
			runtimetest.ContainerSpec{EndsAfter: 2 * time.Second, StopsBefore: []string{"shop1"}},
			runtimetest.ContainerSpec{EndsAfter: time.Second})
		r, _ := w.run(t.Context())
		got := map[string]string{}
		for _, p := range r.Pods {
			got[p.Name] = fmt.Sprintf("%v to %v, grace %v, after %q", p.StartedAt.Sub(w.began), p.FinishedAt.Sub(w.began), p.Grace.Duration, p.After)
		}
		want := map[string]string{
			"sidecar": `0s to 5s, grace 10s, after []`,
			"cache":   `5s to 20s, grace 15s, after ["c0"]`,
			"shop":    `0s to 3s, grace 18s, after []`,
		}
		if !maps.Equal(got, want) {
			t.Errorf("Run() recorded %v, want %v", got, want)
		}
	})
}

// The agent is killed, or the shutdown is cancelled, before the signal.
func TestAPodThatStillWaitsHasNoSignalInTheRecord(t *testing.T) {
	for name, end := range map[string]func(d *drain.Drain, kill func()){
		"killed":    func(_ *drain.Drain, kill func()) { kill() },
		"cancelled": func(d *drain.Drain, _ func()) { d.Cancel() },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.pod("sidecar", 0, runtimetest.ContainerSpec{EndsAfter: 5 * time.Second, StopsBefore: []string{"cache0"}})
				w.pod("cache", 0)
				ctx, kill := context.WithCancel(t.Context())
				defer kill()
				d := w.drain()
				time.AfterFunc(2*time.Second, func() { end(d, kill) })
				d.Run(ctx)
				<-d.Idle()
				w.expectSignals("cache0", "")
				for _, p := range d.Record().Pods {
					if waits := p.Name == "cache"; p.StartedAt.IsZero() != waits {
						t.Errorf("Run() recorded %s as stopped at %v", p.Name, p.StartedAt)
					}
				}
			})
		})
	}
}

func TestAContainerThatIgnoresTERMLeavesTimeForTheNext(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("shop", 0,
			runtimetest.ContainerSpec{IgnoresTERM: true, StopsBefore: []string{"shop1"}},
			runtimetest.ContainerSpec{IgnoresTERM: true})
		r, took := w.run(t.Context())
		w.expect(r, true, map[string]journal.Outcome{"shop": journal.Killed})
		w.expectSignals("shop0", "TERM@0s KILL@10s")
		w.expectSignals("shop1", "TERM@10s KILL@20s")
		w.expectTook(took, 20*time.Second)
	})
}

func TestWhoCannotBeKilledBlocksNobody(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("shop", 0,
			runtimetest.ContainerSpec{Unkillable: true, StopsBefore: []string{"shop1"}},
			runtimetest.ContainerSpec{})
		w.pod("dns", plan.CriticalPriority, runtimetest.ContainerSpec{})
		r, _ := w.run(t.Context())
		w.expect(r, false, map[string]journal.Outcome{"shop": journal.Left, "dns": journal.Stopped})
		// One second after the kill, which is how much longer a call may take.
		w.expectSignals("shop1", "TERM@11s")
	})
}

func TestContainersOfACycleStopTogether(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("shop", 0,
			runtimetest.ContainerSpec{StopsBefore: []string{"shop1"}},
			runtimetest.ContainerSpec{StopsBefore: []string{"shop0", "shop1"}})
		r, took := w.run(t.Context())
		w.expect(r, true, map[string]journal.Outcome{"shop": journal.Stopped})
		w.expectSignals("shop0", "TERM@0s")
		w.expectSignals("shop1", "TERM@0s")
		w.expectTook(took, 0)
	})
}

func TestAWaitingContainerKeepsRunningAfterACancellation(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("shop", 0,
			runtimetest.ContainerSpec{EndsAfter: 3 * time.Second, StopsBefore: []string{"shop1"}},
			runtimetest.ContainerSpec{})
		d := w.drain()
		time.AfterFunc(2*time.Second, d.Cancel)
		d.Run(t.Context())
		<-d.Idle()
		w.expectSignals("shop0", "TERM@0s")
		w.expectSignals("shop1", "")
	})
}

// The agent was killed while a container waited for others. It has no stop request yet, so it must
// not be killed as if it had ignored one.
func TestAContainerThatWaitedInAnEarlierProcessIsStopped(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.options.Start = time.Now().Add(-4 * time.Second)
		old := w.options.Start.Add(-time.Hour)
		w.pod("shop", 0,
			runtimetest.ContainerSpec{IgnoresTERM: true, CreatedAt: old, StopsBefore: []string{"shop1"}},
			runtimetest.ContainerSpec{EndsAfter: time.Second, CreatedAt: old, StopsBefore: []string{"shop2"}},
			runtimetest.ContainerSpec{IgnoresTERM: true, CreatedAt: old})
		w.options.Record.StartedAt = w.options.Start
		w.options.Record.Pods = []journal.PodRecord{{Runtime: "fake", ID: "shop", Name: "shop", StartedAt: w.options.Start, ContainerMaps: journal.ContainerMaps{Asked: map[string]time.Time{"shop1": {}, "shop2": {}}, Late: map[string]time.Time{"shop0": w.options.Start}}}}
		r, _ := w.run(t.Context())
		w.expect(r, true, map[string]journal.Outcome{"shop": journal.Killed})
		// 16 s are left for three containers; the stop of the first one was requested 4 s ago.
		w.expectSignals("shop0", "KILL@6s")
		w.expectSignals("shop1", "TERM@6s")
		w.expectSignals("shop2", "TERM@7s KILL@16s")
		if asked := r.Pods[0].Asked; len(asked) != 2 || asked["shop2"].Sub(w.began) != 7*time.Second {
			t.Errorf("Run() recorded %v, want when shop1 and shop2 were asked", asked)
		}
	})
}

// The record has what another process needs to continue from the start.
func TestWaitingContainersAreRecorded(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("shop", 0,
			runtimetest.ContainerSpec{EndsAfter: 3 * time.Second, StopsBefore: []string{"shop1"}},
			runtimetest.ContainerSpec{EndsAfter: 3 * time.Second, StopsBefore: []string{"shop2"}},
			runtimetest.ContainerSpec{})
		ctx, kill := context.WithTimeout(t.Context(), 4*time.Second)
		defer kill()
		w.run(ctx)
		w.mu.Lock()
		defer w.mu.Unlock()
		asked := w.published[len(w.published)-1].Pods[0].Asked
		if at, waits := asked["shop2"]; len(asked) != 2 || asked["shop1"].Sub(w.began) != 3*time.Second || !waits || !at.IsZero() {
			t.Errorf("Run() published %v, want that shop1 was asked after 3s, and shop2 not yet", asked)
		}
	})
}

// The container that it waited for may have ended since.
func TestAContainerWhoseWaitEndedWithoutAnAgentIsStopped(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.options.Start = time.Now().Add(-4 * time.Second)
		old := w.options.Start.Add(-time.Hour)
		w.pod("shop", 0,
			runtimetest.ContainerSpec{State: runtime.Exited, CreatedAt: old, StopsBefore: []string{"shop1"}},
			runtimetest.ContainerSpec{EndsAfter: time.Second, CreatedAt: old})
		w.options.Record.StartedAt = w.options.Start
		w.options.Record.Pods = []journal.PodRecord{{Runtime: "fake", ID: "shop", Name: "shop", StartedAt: w.options.Start, ContainerMaps: journal.ContainerMaps{Asked: map[string]time.Time{"shop1": {}}}}}
		r, _ := w.run(t.Context())
		w.expect(r, true, map[string]journal.Outcome{"shop": journal.Stopped})
		w.expectSignals("shop1", "TERM@0s")
	})
}

// If its stop was requested after those of others, a later process does not repeat it.
func TestAContainerThatWasStoppedInOrderIsNotStoppedAgain(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.options.Start = time.Now().Add(-4 * time.Second)
		old := w.options.Start.Add(-time.Hour)
		w.pod("shop", 0,
			runtimetest.ContainerSpec{State: runtime.Exited, CreatedAt: old, StopsBefore: []string{"shop1"}},
			runtimetest.ContainerSpec{IgnoresTERM: true, CreatedAt: old, Labels: grace("10s")})
		w.pod("other", 0, runtimetest.ContainerSpec{})
		w.options.Record.StartedAt = w.options.Start
		w.options.Record.Pods = []journal.PodRecord{{
			Runtime: "fake", ID: "shop", Name: "shop", StartedAt: w.options.Start,
			ContainerMaps: journal.ContainerMaps{Asked: map[string]time.Time{"shop1": time.Now().Add(-3 * time.Second)}},
		}}
		w.run(t.Context())
		w.expectSignals("shop1", "KILL@7s")
	})
}

// slowOrder is a runtime whose first lists lack grace periods.
type slowOrder struct {
	drain.Runtime
	lacking int // number of incomplete lists
	timeout time.Duration
}

func (r *slowOrder) Pods(ctx context.Context) ([]runtime.Pod, error) {
	pods, err := r.Runtime.Pods(ctx)
	for i := range pods {
		for j := range pods[i].Containers {
			c := &pods[i].Containers[j]
			c.Incomplete = r.lacking > 0
			if !c.Incomplete {
				c.StopTimeout = &r.timeout
			}
		}
	}
	r.lacking--
	return pods, err
}

// The grace period of a new container may not be known yet.
func TestAMissingGraceIsAwaited(t *testing.T) {
	for lacking, want := range map[int]string{0: "TERM@0s KILL@50s", 1: "TERM@0s KILL@50s", 2: "TERM@0s KILL@1m0s", 100: "TERM@0s KILL@1m0s"} {
		t.Run(fmt.Sprint(lacking, " lists lack it"), func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.pod("db", 0, runtimetest.ContainerSpec{IgnoresTERM: true})
				w.options.Phases = []plan.PhaseSpec{{Name: "all", Grace: time.Minute}}
				w.roster.Runtime = &slowOrder{w.fake, lacking, 50 * time.Second}
				w.run(t.Context())
				w.expectSignals("db0", want)
			})
		})
	}
}

// The known pods may lack it, and the list in progress may have it.
func TestAMissingGraceOfAKnownPodIsAwaited(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("db", 0, runtimetest.ContainerSpec{IgnoresTERM: true})
		w.options.Phases = []plan.PhaseSpec{{Name: "all", Grace: time.Minute}}
		order := &slowOrder{w.fake, 1, 50 * time.Second}
		w.roster.Runtime = order
		known, err := order.Pods(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		w.roster.Set(known)
		w.roster.Runtime = late{order, 200 * time.Millisecond}
		w.run(t.Context())
		w.expectSignals("db0", "TERM@200ms KILL@50.2s")
	})
}

// late is a runtime whose lists take long.
type late struct {
	drain.Runtime
	by time.Duration
}

func (r late) Pods(ctx context.Context) ([]runtime.Pod, error) {
	_ = bounded.Sleep(ctx, r.by)
	return r.Runtime.Pods(ctx)
}

// The container that it waits for may use the whole time.
func TestAContainerThatWaitedToTheEndGetsAStopSignal(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("shop", 0, runtimetest.ContainerSpec{Unkillable: true, StopsBefore: []string{"shop1"}, Labels: grace("60s")}, runtimetest.ContainerSpec{EndsAfter: time.Millisecond, Labels: grace("1s")})
		w.pod("dns", plan.CriticalPriority)
		w.run(t.Context())
		w.expectSignals("shop1", "TERM@20s")
		w.fake.Exit("shop0", 0)
	})
}
