package drain_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/runtimetest"
	"hostler.io/hostler/shutdown/drain"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/shutdown/plan"
)

func TestPhasesRunInOrderAndNobodyWaitsForNothing(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("web", 0, runtimetest.ContainerSpec{EndsAfter: 3 * time.Second}, runtimetest.ContainerSpec{EndsAfter: time.Second})
		w.pod("db", 0, runtimetest.ContainerSpec{EndsAfter: 2 * time.Second})
		w.pod("dns", plan.CriticalPriority, runtimetest.ContainerSpec{EndsAfter: 4 * time.Second})
		r, took := w.run(t.Context())
		w.expect(r, true, map[string]journal.Outcome{"web": journal.Stopped, "db": journal.Stopped, "dns": journal.Stopped})
		w.expectTook(took, 7*time.Second)
		w.expectSignals("web0", "TERM@0s")
		w.expectSignals("web1", "TERM@0s")
		w.expectSignals("db0", "TERM@0s")
		w.expectSignals("dns0", "TERM@3s")
		for _, p := range r.Pods {
			if p.Phase != map[bool]string{true: "critical", false: "regular"}[p.Name == "dns"] || p.StartedAt.IsZero() || p.FinishedAt.Before(p.StartedAt) {
				t.Errorf("Run() recorded %+v, want phase, start and end", p)
			}
		}
		if calls := w.fake.Calls(runtimetest.StopPod); len(calls) != 3 {
			t.Errorf("%d sandboxes were torn down, want 3", len(calls))
		}
		for _, c := range w.fake.Calls(runtimetest.StopPod) {
			if c.Subject == "web" && c.Start.Sub(w.began) != 3*time.Second {
				t.Errorf("the sandbox of web was torn down after %v, want when its last container was gone", c.Start.Sub(w.began))
			}
		}
	})
}

func TestWhoIgnoresTERMIsKilledAtTheEndOfTheSmallerGrace(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("short", 0, runtimetest.ContainerSpec{IgnoresTERM: true, Labels: grace("5s")})
		w.pod("long", 0, runtimetest.ContainerSpec{IgnoresTERM: true, Labels: grace("5m")})
		w.pod("none", 0, runtimetest.ContainerSpec{Labels: grace("0s")})
		w.pod("dns", plan.CriticalPriority, runtimetest.ContainerSpec{IgnoresTERM: true})
		r, took := w.run(t.Context())
		w.expect(r, true, map[string]journal.Outcome{"short": journal.Killed, "long": journal.Killed, "none": journal.Killed, "dns": journal.Killed})
		w.expectSignals("short0", "TERM@0s KILL@5s")
		w.expectSignals("long0", "TERM@0s KILL@20s")
		w.expectSignals("none0", "KILL@0s")
		w.expectSignals("dns0", "TERM@20s KILL@30s")
		w.expectTook(took, 30*time.Second)
	})
}

func TestTimeThatOnePhaseDoesNotNeedGoesToTheNext(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("web", 0, runtimetest.ContainerSpec{EndsAfter: 5 * time.Second})
		w.pod("dns", plan.CriticalPriority, runtimetest.ContainerSpec{EndsAfter: 22 * time.Second})
		r, took := w.run(t.Context())
		w.expect(r, true, map[string]journal.Outcome{"web": journal.Stopped, "dns": journal.Stopped})
		w.expectTook(took, 27*time.Second)
	})
}

func TestPodsOfAPhaseWithoutTimeAreAskedInTheNext(t *testing.T) {
	for name, shape := range map[string]func(w *world){
		"little is granted": func(w *world) { w.options.Granted = time.Second },
		"no agent was there to begin it": func(w *world) {
			w.options.Start = time.Now().Add(-21 * time.Second)
			w.options.Record.StartedAt = w.options.Start
			w.pod("asked", 0, runtimetest.ContainerSpec{IgnoresTERM: true, CreatedAt: w.options.Start.Add(-time.Hour)})
			w.options.Record.Pods = []journal.PodRecord{{Runtime: "fake", ID: "asked", Name: "asked", StartedAt: w.options.Start}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.pod("web", 0, runtimetest.ContainerSpec{EndsAfter: 500 * time.Millisecond})
				w.pod("dns", plan.CriticalPriority, runtimetest.ContainerSpec{EndsAfter: 500 * time.Millisecond})
				shape(w)
				want := map[string]journal.Outcome{"web": journal.Stopped, "dns": journal.Stopped}
				if len(w.options.Record.Pods) > 0 {
					want["asked"] = journal.Killed // its time is over
				}
				r, _ := w.run(t.Context())
				w.expect(r, true, want)
				w.expectSignals("web0", "TERM@0s")
				w.expectSignals("dns0", "TERM@0s")
				if len(r.Pods) == 3 {
					w.expectSignals("asked0", "KILL@0s")
				}
			})
		})
	}
}

func TestFivePriorityGroups(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.options.Phases = nil
		for i := range 5 {
			w.options.Phases = append(w.options.Phases, plan.PhaseSpec{Name: fmt.Sprint("p", i), Priority: int32(i * 10), Grace: 2 * time.Second})
			if i != 2 { // an empty phase is skipped
				w.pod(fmt.Sprint("pod", i), int32(i*10), runtimetest.ContainerSpec{EndsAfter: time.Second})
			}
		}
		_, took := w.run(t.Context())
		w.expectTook(took, 4*time.Second)
		for at, name := range []string{"pod00", "pod10", "pod30", "pod40"} {
			w.expectSignals(name, fmt.Sprintf("TERM@%v", time.Duration(at)*time.Second))
		}
	})
}

func TestTwoHundredPodsStartTogether(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		for i := range 200 {
			w.pod(fmt.Sprint("pod-", i, "-"), 0, runtimetest.ContainerSpec{EndsAfter: time.Second}, runtimetest.ContainerSpec{EndsAfter: time.Second})
		}
		r, took := w.run(t.Context())
		w.expectTook(took, time.Second)
		if n := len(w.fake.Calls(runtimetest.StopContainer)); n != 400 || len(r.Pods) != 200 || !r.Graceful {
			t.Errorf("Run() made %d stop calls for %d pods, graceful %v, want 400 for 200", n, len(r.Pods), r.Graceful)
		}
	})
}

func TestAHungStopHoldsNobodyUpAndIsNamed(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("stuck", 0, runtimetest.ContainerSpec{}, runtimetest.ContainerSpec{})
		w.pod("web", 0)
		w.pod("dns", plan.CriticalPriority, runtimetest.ContainerSpec{IgnoresTERM: true})
		w.fake.Inject(runtimetest.StopContainer, runtimetest.Fault{Hang: true, Subject: "stuck1"})
		w.fake.Inject(runtimetest.StopPod, runtimetest.Fault{Hang: true, Subject: "stuck"})
		r, took := w.run(t.Context())
		w.expect(r, false, map[string]journal.Outcome{"stuck": journal.Left, "web": journal.Stopped, "dns": journal.Killed})
		i := slices.IndexFunc(r.Pods, func(p journal.PodRecord) bool { return p.Name == "stuck" })
		if p := r.Pods[i]; !slices.Equal(p.Stuck, []string{"c1"}) || !strings.Contains(p.Error, "c1") {
			t.Errorf("Run() recorded %+v, want container c1 named", p)
		}
		// The next phase begins a moment later, and loses nothing of its time.
		w.expectSignals("dns0", "TERM@20.25s KILL@30.25s")
		w.expectTook(took, 30250*time.Millisecond)
	})
}

func TestAHungStopEndsWithTheSandboxAsTheLastResort(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("stuck", 0)
		w.fake.Inject(runtimetest.StopContainer, runtimetest.Fault{Hang: true})
		r, took := w.run(t.Context())
		w.expect(r, true, map[string]journal.Outcome{"stuck": journal.Killed})
		w.expectSignals("stuck0", "KILL@21s")
		w.expectTook(took, 21*time.Second)
	})
}

func TestWhatCannotDieIsLeft(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("dstate", plan.CriticalPriority, runtimetest.ContainerSpec{Unkillable: true})
		r, took := w.run(t.Context())
		w.expect(r, false, map[string]journal.Outcome{"dstate": journal.Left})
		// The whole period was its own, a second over, and a last resort.
		w.expectTook(took, 32*time.Second)
		w.fake.Exit("dstate0", 0)
	})
}

func TestARuntimeThatComesBackIsAskedAgain(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("web", 0, runtimetest.ContainerSpec{EndsAfter: time.Second, Labels: grace("10s")})
		down := w.fake.Inject(runtimetest.StopContainer, runtimetest.Fault{Err: runtime.ErrUnavailable})
		time.AfterFunc(5*time.Second, down.Release)
		r, _ := w.run(t.Context())
		w.expect(r, true, map[string]journal.Outcome{"web": journal.Stopped})
		calls := w.fake.Calls(runtimetest.StopContainer)
		last := calls[len(calls)-1]
		if want := 10*time.Second - last.Start.Sub(w.began); last.Grace != want {
			t.Errorf("the stop that worked had a grace of %v, want the rest, %v", last.Grace, want)
		}
		if len(calls) > 12 {
			t.Errorf("%d calls in five seconds, want a pause that grows", len(calls))
		}
	})
}

func TestARuntimeThatDoesNotListDoesNotDelayTheFirstStop(t *testing.T) {
	for name, fault := range map[string]runtimetest.Fault{
		"hangs":   {Hang: true},
		"fails":   {Err: runtime.ErrUnavailable},
		"dawdles": {Delay: 700 * time.Millisecond},
	} {
		t.Run("it "+name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.pod("web", 0, runtimetest.ContainerSpec{EndsAfter: time.Second})
				if _, err := w.roster.List(t.Context()); err != nil {
					t.Fatal(err)
				}
				w.pod("new", 0)
				w.fake.Inject(runtimetest.Pods, fault)
				r, took := w.run(t.Context())
				want := map[string]journal.Outcome{"web": journal.Stopped}
				if fault.Delay > 0 {
					want["new"] = journal.Stopped
				}
				// What is not known may run on.
				w.expect(r, fault.Delay > 0, want)
				call := w.fake.Calls(runtimetest.StopContainer)[0]
				if first := call.Start.Sub(w.began); first > 20*time.Millisecond {
					t.Errorf("the first stop came after %v, want at most 20ms", first)
				}
				if call.Grace != 20*time.Second {
					t.Errorf("the first stop had a grace of %v, want the phase's, in whole seconds", call.Grace)
				}
				if took > 5*time.Second {
					t.Errorf("Run() took %v, want it bounded", took)
				}
			})
		})
	}
}

// Seen on a host under load: pods had just been started, their list took longer
// than a second, and what was known were none.
func TestAListThatTakesItsTimeIsWaitedFor(t *testing.T) {
	for name, inject := range map[string]func(w *world){
		"slow": func(w *world) { w.fake.Inject(runtimetest.Pods, runtimetest.Fault{Delay: 3 * time.Second}) },
		"failing, first": func(w *world) {
			time.AfterFunc(2*time.Second, w.fake.Inject(runtimetest.Pods, runtimetest.Fault{Err: runtime.ErrUnavailable}).Release)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.roster.Set(nil)
				w.pod("web", 0, runtimetest.ContainerSpec{EndsAfter: time.Second})
				inject(w)
				r, _ := w.run(t.Context())
				w.expect(r, true, map[string]journal.Outcome{"web": journal.Stopped})
				if calls := w.fake.Calls(runtimetest.Pods); len(calls) > 40 {
					t.Errorf("pods were listed %d times, want a pause between", len(calls))
				}
			})
		})
	}
}

func TestAListFromBeforeTheStopsProvesNothing(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("web", 0)
		if _, err := w.roster.List(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.roster.Runtime = snapshots{w.fake}
		r, _ := w.run(t.Context())
		w.expect(r, true, map[string]journal.Outcome{"web": journal.Stopped})
	})
}

// snapshots is a runtime that looks at once and answers later.
type snapshots struct{ *runtimetest.Fake }

func (s snapshots) Pods(ctx context.Context) ([]runtime.Pod, error) {
	pods, err := s.Fake.Pods(ctx)
	time.Sleep(50 * time.Millisecond)
	return pods, err
}

func TestNoListTakesMoreTimeThanIsGranted(t *testing.T) {
	for _, fault := range []runtimetest.Fault{{Hang: true}, {Delay: 1300 * time.Millisecond}, {Err: runtime.ErrUnavailable}} {
		for _, granted := range []time.Duration{time.Second, 3 * time.Second, 5 * time.Second} {
			inWorld(t, func(t *testing.T, w *world) {
				w.options.Granted = granted
				w.pod("web", 0)
				w.fake.Inject(runtimetest.Pods, fault)
				if _, took := w.run(t.Context()); took > granted*9/10 {
					t.Errorf("Run() took %v where pods are listed with %+v, want to leave some of the %v granted", took, fault, granted)
				}
			})
		}
	}
}

func TestNoPodsKnownAtAll(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("web", 0)
		w.fake.Inject(runtimetest.Pods, runtimetest.Fault{Err: runtime.ErrUnavailable})
		r, took := w.run(t.Context())
		if r.Graceful || !strings.Contains(r.Error, "list pods") || took > 7*time.Second {
			t.Errorf("Run() = %+v after %v, want it not graceful, saying why, within seconds", r, took)
		}
	})
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("web", 0)
		w.fake.Inject(runtimetest.Pods, runtimetest.Fault{Err: runtime.ErrUnavailable, Times: 3})
		r, _ := w.run(t.Context())
		w.expect(r, true, map[string]journal.Outcome{"web": journal.Stopped})
	})
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("web", 0)
		w.roster.Runtime = partial{w.fake}
		r, _ := w.run(t.Context())
		w.expect(r, false, map[string]journal.Outcome{"web": journal.Stopped})
		if !strings.Contains(r.Error, "does not answer") {
			t.Errorf("Run() = %+v where one of two runtimes was never listed, want it to say so", r)
		}
	})
	inWorld(t, func(t *testing.T, w *world) {
		r, took := w.run(t.Context())
		w.expect(r, true, nil)
		w.expectTook(took, 0)
	})
}

// partial is two runtimes of which one never answers.
type partial struct{ *runtimetest.Fake }

func (p partial) Pods(ctx context.Context) ([]runtime.Pod, error) {
	pods, err := p.Fake.Pods(ctx)
	return pods, errors.Join(err, errors.New("the other one does not answer"))
}

func TestARuntimeThatAnswersWithNoPodsHasAnswered(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		empty, down := runtimetest.NewFake(runtimetest.Options{Name: "empty"}), runtimetest.NewFake(runtimetest.Options{Name: "down"})
		down.Inject(runtimetest.Pods, runtimetest.Fault{Err: runtime.ErrUnavailable})
		both, err := runtime.NewSet(empty, down)
		if err != nil {
			t.Fatal(err)
		}
		w.roster.Runtime = both
		w.roster.Set([]runtime.Pod{{Runtime: "empty", ID: "gone"}, {Runtime: "down", ID: "unknown"}})
		pods, err := w.roster.List(t.Context())
		if len(pods) != 1 || pods[0].ID != "unknown" || !errors.Is(err, runtime.ErrUnavailable) {
			t.Errorf("List() = %+v, %v, want the pod of the runtime that does not answer alone", pods, err)
		}
	})
}

func TestPodsThatAppearWhileDraining(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("web", 0, runtimetest.ContainerSpec{EndsAfter: 5 * time.Second})
		w.pod("dns", plan.CriticalPriority, runtimetest.ContainerSpec{EndsAfter: 5 * time.Second})
		time.AfterFunc(1500*time.Millisecond, func() { w.pod("during", 0) })
		time.AfterFunc(6500*time.Millisecond, func() { w.pod("late", 0, runtimetest.ContainerSpec{EndsAfter: time.Second}) })
		time.AfterFunc(9500*time.Millisecond, func() { w.pod("last", 0, runtimetest.ContainerSpec{EndsAfter: time.Second}) })
		r, took := w.run(t.Context())
		w.expect(r, true, map[string]journal.Outcome{
			"web": journal.Stopped, "dns": journal.Stopped, "during": journal.Stopped, "late": journal.Stopped, "last": journal.Stopped,
		})
		w.expectSignals("during0", "TERM@2s")
		w.expectSignals("dns0", "TERM@5s")
		w.expectSignals("late0", "TERM@7s")
		w.expectSignals("last0", "TERM@10s")
		w.expectTook(took, 11*time.Second)
	})
}

// A container that takes all the time of its phase is no reason to look for nobody
// else as long. Who comes when no time is left runs on, and is on record: nobody is to
// read that all went well.
func TestPodsThatAppearBesideOneThatWillNotEnd(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("deaf", 0)
		w.fake.Inject(runtimetest.StopContainer, runtimetest.Fault{Hang: true, Subject: "deaf0"})
		w.pod("dstate", plan.CriticalPriority, runtimetest.ContainerSpec{Unkillable: true})
		time.AfterFunc(time.Second, func() { w.pod("regular", 0) })
		time.AfterFunc(23*time.Second, func() { w.pod("critical", plan.CriticalPriority) })
		time.AfterFunc(19*time.Second, func() { w.pod("between", 0, runtimetest.ContainerSpec{EndsAfter: 2 * time.Second}) })
		time.AfterFunc(20100*time.Millisecond, func() { w.pod("edge", 0) })
		time.AfterFunc(29*time.Second, func() { w.pod("end", plan.CriticalPriority) })
		time.AfterFunc(31500*time.Millisecond, func() { w.pod("latest", 0) })
		r, _ := w.run(t.Context())
		w.expect(r, false, map[string]journal.Outcome{
			"deaf": journal.Killed, "dstate": journal.Left, "end": journal.Left, "latest": journal.Left,
			"regular": journal.Stopped, "between": journal.Stopped, "edge": journal.Stopped, "critical": journal.Stopped,
		})
		w.expectSignals("regular0", "TERM@2s")
		w.expectSignals("between0", "TERM@20.25s") // with the time that the second phase has
		w.expectSignals("edge0", "TERM@20.25s")
		w.expectSignals("end0", "") // rather than a kill without any time
		w.expectSignals("latest0", "")
		if latest := r.Pods[slices.IndexFunc(r.Pods, func(p journal.PodRecord) bool { return p.Name == "latest" })]; latest.Phase != "regular" || !latest.StartedAt.IsZero() || latest.Error == "" {
			t.Errorf("Run() recorded %+v, want it in its phase, never begun, and why", latest)
		}
		w.fake.Exit("dstate0", 0)
	})
}

// Where the runtime tells of pods that come and go they are listed anyway, and a
// runtime that is busy stopping them is not to be asked twice.
func TestWhatSomebodyElseListedIsNotAskedForAgain(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("web", 0, runtimetest.ContainerSpec{EndsAfter: 9500 * time.Millisecond})
		time.AfterFunc(time.Second, func() {
			w.pod("new", 0)
			pods, _ := w.fake.Pods(t.Context())
			for after := range 9 {
				time.AfterFunc(time.Duration(after)*time.Second, func() { w.roster.Set(pods) })
			}
		})
		r, _ := w.run(t.Context())
		w.expect(r, true, map[string]journal.Outcome{"web": journal.Stopped, "new": journal.Stopped})
		w.expectSignals("new0", "TERM@2s")
		if n := len(w.fake.Calls(runtimetest.Pods)); n > 4 {
			t.Errorf("pods were listed %d times, want once by somebody else, once before the first stop and once after each phase", n)
		}
	})
}

func TestAPodThatAppearsIsSeenThoughListsTakeTheirTime(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("web", 0, runtimetest.ContainerSpec{EndsAfter: 15 * time.Second})
		time.AfterFunc(time.Second, func() {
			w.pod("new", 0)
			w.fake.Inject(runtimetest.Pods, runtimetest.Fault{Delay: 3 * time.Second})
		})
		r, _ := w.run(t.Context())
		w.expect(r, true, map[string]journal.Outcome{"web": journal.Stopped, "new": journal.Stopped})
		w.expectSignals("new0", "TERM@5s")
	})
}

func TestASandboxHoldsTheNextPhaseBackOnlyForAMoment(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("web", 0)
		w.pod("dns", plan.CriticalPriority)
		w.fake.Inject(runtimetest.StopPod, runtimetest.Fault{Hang: true})
		r, took := w.run(t.Context())
		w.expect(r, true, map[string]journal.Outcome{"web": journal.Stopped, "dns": journal.Stopped})
		w.expectTook(took, 2*time.Second) // and none for the last phase's
	})
}

func TestWhatLiesBetweenTheLastContainerAndTheNextStepIsOneListAndTheSandboxes(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("web", 0, runtimetest.ContainerSpec{EndsAfter: time.Second})
		w.pod("db", 0, runtimetest.ContainerSpec{EndsAfter: time.Second})
		w.pod("dns", plan.CriticalPriority, runtimetest.ContainerSpec{EndsAfter: time.Second})
		w.roster.Set(nil)
		const list, sandbox = 8 * time.Millisecond, 40 * time.Millisecond
		w.fake.Inject(runtimetest.Pods, runtimetest.Fault{Delay: list})
		w.fake.Inject(runtimetest.StopPod, runtimetest.Fault{Delay: sandbox})
		r, took := w.run(t.Context())
		w.expect(r, true, map[string]journal.Outcome{"web": journal.Stopped, "db": journal.Stopped, "dns": journal.Stopped})
		w.expectSignals("web0", fmt.Sprint("TERM@", list))
		// The list that shows the phase's containers gone is made while their
		// sandboxes are torn down.
		w.expectSignals("dns0", fmt.Sprint("TERM@", list+time.Second+sandbox))
		// And at the end nothing but that list is waited for.
		w.expectTook(took, list+time.Second+sandbox+time.Second+list)
		if n := len(w.fake.Calls(runtimetest.Pods)); n != 3 {
			t.Errorf("pods were listed %d times, want once before the first stop and once after each phase", n)
		}
	})
}

func TestCriticalPodsAreSpared(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.options.SpareCritical = true
		w.pod("web", 0)
		w.pod("dns", plan.CriticalPriority)
		r, took := w.run(t.Context())
		w.expect(r, true, map[string]journal.Outcome{"web": journal.Stopped, "dns": journal.Skipped})
		w.expectSignals("dns0", "")
		w.expectTook(took, 0)
	})
}

func TestATrustingRuntimeIsNotBelieved(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("zombie", 0, runtimetest.ContainerSpec{Unkillable: true})
		w.roster.Runtime = liar{w.fake}
		r, took := w.run(t.Context())
		w.expect(r, false, map[string]journal.Outcome{"zombie": journal.Left})
		w.expectTook(took, 0)
		w.fake.Exit("zombie0", 0)
	})
}

// liar says that all is stopped.
type liar struct{ *runtimetest.Fake }

func (liar) StopContainer(context.Context, runtime.Container, time.Duration) error { return nil }
func (liar) StopPod(context.Context, runtime.Pod) error                            { return nil }

func TestProgressIsPublished(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("web", 0, runtimetest.ContainerSpec{EndsAfter: time.Second})
		w.pod("dns", plan.CriticalPriority)
		w.run(t.Context())
		var story []string
		for _, r := range w.published {
			story = append(story, fmt.Sprint(outcomes(r)))
		}
		want := []string{"map[]", "map[dns: web:]", "map[dns: web:stopped]", "map[dns: web:stopped]", "map[dns:stopped web:stopped]", "map[dns:stopped web:stopped]"}
		if !slices.Equal(story, want) {
			t.Errorf("published %q, want %q", story, want)
		}
	})
}

func TestRosterKeepsWhatOneRuntimeDoesNotTell(t *testing.T) {
	answer := []runtime.Pod{{Runtime: "a", ID: "1"}, {Runtime: "b", ID: "2"}}
	var fault error
	roster := &drain.Roster{Runtime: lister{func() ([]runtime.Pod, error) { return answer, fault }}}
	if pods, err := roster.List(t.Context()); err != nil || len(pods) != 2 {
		t.Fatalf("List() = %v, %v, want both", pods, err)
	}
	answer, fault = []runtime.Pod{{Runtime: "a", ID: "3"}}, errors.New("b does not answer")
	pods, err := roster.List(t.Context())
	if err == nil || len(pods) != 2 || pods[0].ID != "3" || pods[1].ID != "2" {
		t.Errorf("List() = %v, %v, want a's new pod and b's old one, and the error", pods, err)
	}
}

// lister is a runtime of which a test needs the list alone.
type lister struct {
	pods func() ([]runtime.Pod, error)
}

func (l lister) Pods(context.Context) ([]runtime.Pod, error) { return l.pods() }
func (lister) StopContainer(context.Context, runtime.Container, time.Duration) error {
	panic("not expected")
}
func (lister) StopPod(context.Context, runtime.Pod) error { panic("not expected") }
