package drain_test

import (
	"context"
	"errors"
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
				// Unknown pods may still be running.
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

// Seen on a host under load: pods had just started, listing them took more than a second, and no
// pods were known.
func TestASlowFirstListIsAwaited(t *testing.T) {
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

// Known pods are stopped without a new list, unless they are known to be outdated. A new container
// may have to stop before the others.
func TestANewContainerIsStoppedInOrder(t *testing.T) {
	for name, tt := range map[string]struct {
		reported bool
		fault    runtimetest.Fault
		proxy    string
		api      string
	}{
		"and an event reports it":                     {true, runtimetest.Fault{Delay: 300 * time.Millisecond}, "TERM@300ms", "TERM@1.3s"},
		"and an event reports it, but no list has it": {true, runtimetest.Fault{Hang: true}, "", "TERM@1s"},
		"and no event reports it":                     {false, runtimetest.Fault{Delay: 300 * time.Millisecond}, "TERM@300ms", "TERM@10ms"},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.pod("api", 0, runtimetest.ContainerSpec{EndsAfter: 2 * time.Second})
				if _, err := w.roster.List(t.Context()); err != nil {
					t.Fatal(err)
				}
				w.fake.AddContainer("api", runtimetest.ContainerSpec{ID: "proxy", Name: "proxy", Image: "image", EndsAfter: time.Second, StopsBefore: []string{"api0"}})
				if tt.reported {
					w.roster.Change()
				}
				listing := w.fake.Inject(runtimetest.Pods, tt.fault)
				time.AfterFunc(2*time.Second, func() {
					w.expectSignals("proxy", tt.proxy)
					listing.Release()
				})
				w.run(t.Context())
				w.expectSignals("api0", tt.api)
			})
		})
	}
}

// snapshots is a runtime that reads its state at once, but answers later.
type snapshots struct{ *runtimetest.Fake }

func (s snapshots) Pods(ctx context.Context) ([]runtime.Pod, error) {
	pods, err := s.Fake.Pods(ctx)
	time.Sleep(50 * time.Millisecond)
	return pods, err
}

func TestAnOldListDoesNotReplaceANewerOne(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("api", 0)
		roster := &drain.Roster{Runtime: snapshots{w.fake}}
		time.AfterFunc(20*time.Millisecond, func() {
			w.pod("web", 0)
			roster.Change()
			roster.Set(w.list())
		})
		if _, err := roster.List(t.Context()); err != nil {
			t.Fatal(err)
		}
		if known, _ := roster.Last(); len(known) != 2 {
			t.Errorf("Last() = %+v, want api and web", known)
		}
	})
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

// A process that continues a drain may start when almost no time is left.
func TestKnownPodsAreRecordedIfNoTimeIsLeftToList(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.options.Start, w.options.Granted = time.Now().Add(-time.Second), time.Second
		w.options.Record.FinishedAt = time.Now() // the known pods may be outdated
		w.pod("web", 0)
		if _, err := w.roster.List(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.fake.Inject(runtimetest.Pods, runtimetest.Fault{Hang: true})
		r, _ := w.run(t.Context())
		w.expect(r, false, map[string]journal.Outcome{"web": journal.Left})
		w.expectSignals("web0", "") // it has more time when the service stops
	})
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

// partial is a set of two runtimes of which one never answers.
type partial struct{ drain.Runtime }

func (p partial) Pods(ctx context.Context) ([]runtime.Pod, error) {
	pods, err := p.Runtime.Pods(ctx)
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
		// If an error does not name all failed runtimes, only listed pods count.
		w.roster.Runtime = partial{both}
		if pods, err := w.roster.List(t.Context()); len(pods) != 2 || !errors.Is(err, runtime.ErrUnavailable) {
			t.Errorf("List() = %+v, %v, want all pods that are known", pods, err)
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

// A container that takes the whole phase must not delay the search for new pods. A pod that appears
// when no time is left keeps running. It is recorded, so that the result does not look complete.
func TestPodsThatAppearDuringAFullPhase(t *testing.T) {
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
		w.expectSignals("between0", "TERM@20.25s") // with the time of the second phase
		w.expectSignals("edge0", "TERM@20.25s")
		w.expectSignals("end0", "") // instead of a kill without grace period
		w.expectSignals("latest0", "")
		if latest := r.Pods[slices.IndexFunc(r.Pods, func(p journal.PodRecord) bool { return p.Name == "latest" })]; latest.Phase != "regular" || !latest.StartedAt.IsZero() || latest.Error == "" {
			t.Errorf("Run() recorded %+v, want it in its phase, never begun, and why", latest)
		}
		w.fake.Exit("dstate0", 0)
	})
}

// If the runtime sends events, the agent lists pods anyway. A runtime that is busy must not be
// queried twice.
func TestAListOfTheAgentReplacesOneOfTheDrain(t *testing.T) {
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

func TestAPodThatAppearsIsSeenDespiteSlowLists(t *testing.T) {
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
