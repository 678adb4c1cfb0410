package drain_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/runtimetest"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/shutdown/plan"
)

// comes starts a container in a pod at a time, and ends it at another.
func (w *world) comes(pod string, at, ends time.Duration) {
	time.AfterFunc(at, func() { w.fake.AddContainer(pod, runtimetest.ContainerSpec{ID: "late", Name: "late", Image: "image"}) })
	time.AfterFunc(ends, func() { w.fake.Exit("late", 0) })
}

// A new container may end before its stop. Then only the sandbox must be torn down.
func TestASandboxIsTornDownIfTheNewContainerEnds(t *testing.T) {
	refused := runtimetest.Fault{Err: errors.New("denied")}
	for name, c := range map[string]struct {
		priority int32
		ends     time.Duration // when web ends; if zero, it ignores SIGTERM
		stop     runtimetest.Fault
		came     time.Duration
		outcome  journal.Outcome
	}{
		"once all have ended":                       {0, 19500 * time.Millisecond, runtimetest.Fault{Subject: "none"}, 17500 * time.Millisecond, journal.Stopped},
		"as the last resort":                        {0, 0, refused, 17500 * time.Millisecond, journal.Killed},
		"as the last resort, in the phase":          {0, 0, runtimetest.Fault{Delay: 19200 * time.Millisecond, Err: runtime.ErrUnsupported}, 17500 * time.Millisecond, journal.Killed},
		"once all have ended, after the last phase": {plan.CriticalPriority, 30*time.Second - 1, runtimetest.Fault{Subject: "none"}, 27500 * time.Millisecond, journal.Stopped},
		"as the last resort, after the last phase":  {plan.CriticalPriority, 0, refused, 27500 * time.Millisecond, journal.Killed},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.pod("web", c.priority, runtimetest.ContainerSpec{EndsAfter: c.ends, IgnoresTERM: c.ends == 0, Labels: grace("60s")})
				w.pod("deaf", c.priority, runtimetest.ContainerSpec{IgnoresTERM: true, Labels: grace("60s")})
				if c.stop.Subject == "" {
					c.stop.Subject = "web0"
				}
				w.fake.Inject(runtimetest.StopContainer, c.stop)
				w.fake.Inject(runtimetest.StopPod, runtimetest.Fault{Delay: 300 * time.Millisecond})
				w.comes("web", c.came, c.came+1500*time.Millisecond)
				r, _ := w.run(t.Context())
				w.expect(r, true, map[string]journal.Outcome{"web": c.outcome, "deaf": journal.Killed})
				w.expectSignals("late", "")
				if n := w.asked(runtimetest.StopPod, "web"); n != 1 {
					t.Errorf("the sandbox was torn down %d times, want once", n)
				}
			})
		})
	}
}

// A list that does not show the new container may be older than one that does.
func TestAnOldListTearsDownNoSandbox(t *testing.T) {
	for name, outdated := range map[string]func(*world){
		"of somebody else": func(w *world) {
			before := w.list()
			time.AfterFunc(19900*time.Millisecond, func() {
				w.roster.Set(before)
				w.fake.Inject(runtimetest.Pods, runtimetest.Fault{Delay: 100 * time.Millisecond})
			})
		},
		"of a runtime that does not answer": func(w *world) {
			w.besideOneThatGoesAway(500 * time.Millisecond)
			time.AfterFunc(18500*time.Millisecond, func() {
				w.fake.Inject(runtimetest.Pods, runtimetest.Fault{Err: runtime.ErrUnavailable, Times: 1})
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.pod("web", 0, runtimetest.ContainerSpec{EndsAfter: 19 * time.Second, Labels: grace("60s")})
				w.pod("deaf", 0)
				w.fake.Inject(runtimetest.StopContainer, runtimetest.Fault{Hang: true, Subject: "deaf0"})
				outdated(w)
				time.AfterFunc(17500*time.Millisecond, func() {
					w.fake.AddContainer("web", runtimetest.ContainerSpec{ID: "late", Name: "late", Image: "image", EndsAfter: time.Second, Labels: grace("5s")})
				})
				w.run(t.Context())
				if got := w.signals("late"); got != "TERM@20.25s" && got != "TERM@20.35s" {
					t.Errorf("the new container got %q, want the stop signal in the next phase", got)
				}
			})
		})
	}
}

// The same for a new container in a pod of a later phase.
func TestAnOldListTearsDownNoSandboxOfALaterPhase(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("deaf", 0)
		w.fake.Inject(runtimetest.StopContainer, runtimetest.Fault{Hang: true, Subject: "deaf0"})
		w.pod("dns", plan.CriticalPriority)
		before := w.list()
		time.AfterFunc(15*time.Second, func() {
			w.fake.AddContainer("dns", runtimetest.ContainerSpec{ID: "late", Name: "late", Image: "image", EndsAfter: time.Second, Labels: grace("5s")})
		})
		for _, at := range []time.Duration{17900 * time.Millisecond, 19900 * time.Millisecond} {
			time.AfterFunc(at, func() { w.roster.Set(before) })
		}
		time.AfterFunc(20*time.Second, func() { w.fake.Inject(runtimetest.Pods, runtimetest.Fault{Delay: 100 * time.Millisecond}) })
		w.run(t.Context())
		w.expectSignals("late", "TERM@20.35s")
	})
}

// A list that does not identify the run must not count as a new run of a stopped container.
func TestAListWithoutRunsStartsNoSecondStop(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("web", 0, runtimetest.ContainerSpec{EndsAfter: time.Second})
		w.pod("slow", 0, runtimetest.ContainerSpec{EndsAfter: 9 * time.Second})
		before := w.list()
		time.AfterFunc(3900*time.Millisecond, func() { w.roster.Set(before) })
		r, _ := w.run(t.Context())
		for _, p := range r.Pods {
			if p.Name == "web" && (p.FinishedAt.Sub(w.began) != time.Second || w.asked(runtimetest.StopPod, "web") != 1) {
				t.Errorf("web was over after %v and torn down %d times, want after 1s and once", p.FinishedAt.Sub(w.began), w.asked(runtimetest.StopPod, "web"))
			}
		}
	})
}

// The record has the time when the last container of a pod ended, not when a list showed it.
func TestTheEndOfAPodWhoseSandboxWaited(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("web", 0, runtimetest.ContainerSpec{EndsAfter: 19 * time.Second, Labels: grace("60s")})
		w.pod("deaf", 0)
		w.fake.Inject(runtimetest.StopContainer, runtimetest.Fault{Hang: true, Subject: "deaf0"})
		w.comes("web", 17500*time.Millisecond, 18500*time.Millisecond)
		r, _ := w.run(t.Context())
		for _, p := range r.Pods {
			if ended := p.FinishedAt.Sub(w.began); p.Name == "web" && ended != 19*time.Second {
				t.Errorf("web is said to have ended after %v, want 19s", ended)
			}
		}
	})
}

// The outcome that an earlier process recorded stays.
func TestAPodThatAnEarlierProcessKilledStaysKilled(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.asDocker()
		w.pod("web", 0, runtimetest.ContainerSpec{IgnoresTERM: true, Labels: grace("3s")})
		w.pod("slow", 0, runtimetest.ContainerSpec{EndsAfter: 19500 * time.Millisecond, Labels: grace("60s")})
		w.comes("web", 18100*time.Millisecond, 19*time.Second)
		r := w.endAndGoOn(func() {}, 6*time.Second)
		w.expect(r, true, map[string]journal.Outcome{"web": journal.Killed, "slow": journal.Stopped})
		w.expectSignals("late", "")
	})
}

// A kubelet starts a container again with another ID. One list shows the end of the old one and the
// new one.
func TestAContainerThatReplacesAnotherHasItsGrace(t *testing.T) {
	for priority, want := range map[int32]string{0: "TERM@20s", plan.CriticalPriority: ""} { // after the last phase there is no time
		inWorld(t, func(t *testing.T, w *world) {
			over := 20 * time.Second
			if priority > 0 {
				over = 30 * time.Second
			}
			w.pod("web", priority, runtimetest.ContainerSpec{EndsAfter: over - time.Second, Labels: grace("60s")})
			w.pod("deaf", priority, runtimetest.ContainerSpec{IgnoresTERM: true, Labels: grace("60s")})
			w.comes("web", over-2500*time.Millisecond, over-900*time.Millisecond)
			time.AfterFunc(over-800*time.Millisecond, func() {
				w.fake.AddContainer("web", runtimetest.ContainerSpec{ID: "later", Name: "later", Image: "image", EndsAfter: time.Second, Labels: grace("5s")})
			})
			w.run(t.Context())
			w.expectSignals("later", want)
			if want == "" {
				w.fake.Exit("later", 0)
			}
		})
	}
}

// A pod with a container that is still running must not be recorded as stopped.
func TestAPodWithANewContainerIsLeftByACancellation(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("web", 0, runtimetest.ContainerSpec{EndsAfter: 19300 * time.Millisecond, Labels: grace("60s")})
		w.comes("web", 17500*time.Millisecond, time.Minute)
		d := w.drain()
		time.AfterFunc(19*time.Second, d.Cancel)
		d.Run(t.Context())
		<-d.Idle()
		if got := outcomes(d.Record())["web"]; got != journal.Left || w.signals("late") != "" {
			t.Errorf("outcome of web = %s, and who came got %q, want it left and unasked", got, w.signals("late"))
		}
		time.Sleep(time.Minute)
	})
}

// A runtime may hang at the first attempt.
func TestAFailedLastResortIsRepeated(t *testing.T) {
	for name, late := range map[string]runtimetest.Fault{"to stop": {Err: runtime.ErrUnsupported, Subject: "late"}, "nobody": {Subject: "none"}} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.pod("web", 0, runtimetest.ContainerSpec{IgnoresTERM: true, Labels: grace("60s")})
				w.fake.Inject(runtimetest.StopContainer, runtimetest.Fault{Delay: 1500 * time.Millisecond, Err: runtime.ErrUnsupported, Subject: "web0"})
				w.fake.Inject(runtimetest.StopContainer, late)
				w.fake.Inject(runtimetest.StopPod, runtimetest.Fault{Hang: true, Times: 1})
				time.AfterFunc(1600*time.Millisecond, func() {
					w.fake.AddContainer("web", runtimetest.ContainerSpec{ID: "late", Name: "late", Image: "image"})
				})
				r, _ := w.run(t.Context())
				w.expect(r, true, map[string]journal.Outcome{"web": journal.Killed})
			})
		})
	}
}

// Network plug-ins are critical pods, so the sandboxes of the previous phase are torn down while
// they run.
func TestSandboxesOfAPhaseDoNotWaitForTheNext(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.roster.Runtime = slowKiller{w.fake}
		for i := range 5 {
			w.pod(fmt.Sprint("web", i), 0, runtimetest.ContainerSpec{IgnoresTERM: true, Labels: grace("60s")})
		}
		w.pod("quick", plan.CriticalPriority)
		w.pod("dns", plan.CriticalPriority, runtimetest.ContainerSpec{EndsAfter: 8 * time.Second, Labels: grace("60s")})
		w.fake.Inject(runtimetest.StopPod, runtimetest.Fault{Delay: 5 * time.Second})
		w.run(t.Context())
		for _, c := range w.fake.Calls(runtimetest.StopPod) {
			if at := c.Start.Sub(w.began); c.Subject != "dns" && at > 20500*time.Millisecond {
				t.Errorf("the sandbox of %s was begun at %v, want it while dns runs", c.Subject, at)
			}
		}
	})
}

// slowKiller needs a moment to report that a container has ended.
type slowKiller struct{ *runtimetest.Fake }

func (s slowKiller) StopContainer(ctx context.Context, c runtime.Container, grace time.Duration) error {
	err := s.Fake.StopContainer(ctx, c, grace)
	if strings.HasPrefix(c.ID, "web") {
		time.Sleep(500 * time.Millisecond)
	}
	return err
}

func TestASandboxIsTornDownOnce(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("first", 0)
		w.pod("web", 0, runtimetest.ContainerSpec{EndsAfter: time.Second})
		w.pod("slow", 0, runtimetest.ContainerSpec{EndsAfter: 19 * time.Second, Labels: grace("60s")})
		w.fake.Inject(runtimetest.StopPod, runtimetest.Fault{Delay: 9 * time.Second, Subject: "first"})
		time.AfterFunc(3*time.Second, func() {
			w.fake.AddContainer("web", runtimetest.ContainerSpec{ID: "late", Name: "late", Image: "image", EndsAfter: 2 * time.Second})
		})
		w.run(t.Context())
		if n := w.asked(runtimetest.StopPod, "web"); n != 1 {
			t.Errorf("the sandbox was torn down %d times, want once", n)
		}
	})
}

func TestACancelledManualDrainTearsNothingDown(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.options.Record.Trigger = journal.TriggerManualAll
		for i := range 30 {
			w.pod(fmt.Sprint("web", i), 0, runtimetest.ContainerSpec{EndsAfter: 6 * time.Second})
		}
		ctx, end := context.WithCancel(t.Context())
		time.AfterFunc(5*time.Second, end)
		d := w.drain()
		d.Run(ctx)
		<-d.Idle()
		time.Sleep(5 * time.Second)
		if n := len(w.fake.Calls(runtimetest.StopPod)); n > 0 {
			t.Errorf("%d sandboxes were torn down after its end, want none", n)
		}
	})
}
