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

func TestPhasesRunInOrderWithoutUnneededWaits(t *testing.T) {
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

// Time that a phase does not need goes to the next one. A container that stops after others has
// less.
func TestTheRecordHasTheGraceThatWasGiven(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		given := 3 * time.Second
		w.pod("web", 0, runtimetest.ContainerSpec{EndsAfter: time.Second, Labels: grace("60s")})
		w.pod("plain", 0, runtimetest.ContainerSpec{EndsAfter: time.Second})
		w.pod("unit", 0, runtimetest.ContainerSpec{EndsAfter: time.Second, Unit: "db.service", UnitGrace: &given, Labels: grace("60s")})
		w.pod("chain", 0,
			runtimetest.ContainerSpec{EndsAfter: 2 * time.Second, StopsBefore: []string{"chain1"}, Labels: grace("60s")},
			runtimetest.ContainerSpec{EndsAfter: time.Second, Labels: grace("60s")})
		w.pod("dns", plan.CriticalPriority, runtimetest.ContainerSpec{IgnoresTERM: true, Labels: grace("60s")})
		w.pod("proxy", plan.CriticalPriority, runtimetest.ContainerSpec{EndsAfter: time.Second, Labels: grace("25s")})
		r, _ := w.run(t.Context())
		w.expectSignals("dns0", "TERM@3s KILL@30s")
		for _, p := range r.Pods {
			var limits []string
			for _, l := range p.Limits {
				limits = append(limits, l.String())
			}
			got := strings.TrimSuffix(fmt.Sprintf("%v: %s", p.Grace.Duration, strings.Join(limits, "; ")), ": ")
			if want := map[string]string{
				"web":   "20s: c0 had 20s of 1m0s, limited by phase regular",
				"plain": "20s",
				"unit":  "3s: c0 had 3s of 1m0s, limited by unit db.service",
				"chain": "18s: c0 had 10s of 1m0s, limited by the containers that stop after it; c1 had 18s of 1m0s, limited by phase regular",
				"dns":   "27s: c0 had 27s of 1m0s, limited by phase critical",
				"proxy": "25s",
			}[p.Name]; got != want {
				t.Errorf("the record of %s has a grace of %s, want %s", p.Name, got, want)
			}
		}
	})
}

// A user who did not set a grace period learns why it was less than the default.
func TestAPodThatIsKilledBeforeItsDefaultGraceSaysWhatLimitedIt(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("deaf", 0, runtimetest.ContainerSpec{IgnoresTERM: true})
		w.pod("web", 0, runtimetest.ContainerSpec{EndsAfter: time.Second})
		r, _ := w.run(t.Context())
		for _, p := range r.Pods {
			want := map[string]string{"deaf": "[c0 had 20s of 30s, limited by phase regular]", "web": "[]"}[p.Name]
			if got := fmt.Sprint(p.Limits); got != want {
				t.Errorf("the limits of %s, which was %s, are %s, want %s", p.Name, p.Outcome, got, want)
			}
		}
	})
}

// A unit removes its container after it has ended, so no list has the exit code. If its stop begins
// late, its grace period counts from then.
func TestAContainerThatItsUnitKilledIsRecordedAsKilled(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.roster.Runtime = removing{w.fake}
		given := 3 * time.Second
		w.pod("heeds", 0, runtimetest.ContainerSpec{Unit: "heeds.service", UnitGrace: &given, EndsAfter: 2 * time.Second})
		w.pod("waits", 0, runtimetest.ContainerSpec{Unit: "waits.service", UnitGrace: &given, EndsAfter: 2 * time.Second, UnitWaits: 2 * time.Second})
		w.pod("deaf", 0, runtimetest.ContainerSpec{Unit: "deaf.service", UnitGrace: &given, IgnoresTERM: true})
		w.pod("deaf-to-all", 0, runtimetest.ContainerSpec{Unit: "deaf-to-all.service", IgnoresTERM: true, Labels: grace("5s")})
		r, took := w.run(t.Context())
		w.expect(r, true, map[string]journal.Outcome{"heeds": journal.Stopped, "waits": journal.Stopped, "deaf": journal.Killed, "deaf-to-all": journal.Killed})
		w.expectSignals("deaf0", "TERM@0s KILL@3s")
		w.expectTook(took, 5*time.Second)
		for _, p := range r.Pods {
			if want := map[bool]time.Duration{true: given, false: 5 * time.Second}[p.Name != "deaf-to-all"]; p.Grace.Duration != want {
				t.Errorf("%s has a grace of %v on record, want %v", p.Name, p.Grace.Duration, want)
			}
		}
	})
}

// removing is a runtime that removes its containers when they end.
type removing struct{ *runtimetest.Fake }

func (r removing) StopContainer(ctx context.Context, c runtime.Container, grace time.Duration) error {
	err := r.Fake.StopContainer(ctx, c, grace)
	if err != nil && !errors.Is(err, runtime.ErrKilled) {
		return err
	}
	return errors.Join(err, r.RemoveContainer(ctx, c))
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

func TestAHungStopBlocksNobodyAndIsNamed(t *testing.T) {
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
		// The next phase begins a moment later and keeps all its time.
		w.expectSignals("dns0", "TERM@20.25s KILL@30.25s")
		w.expectTook(took, 31*time.Second) // the last resort hangs until then
	})
}

func TestAKillThatIsLateUsesTheTimeThatLaterPhasesLeave(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("busy", 0)
		w.pod("dns", plan.CriticalPriority, runtimetest.ContainerSpec{EndsAfter: time.Second})
		w.fake.Inject(runtimetest.StopContainer, runtimetest.Fault{Hang: true, Subject: "busy0"})
		w.fake.Inject(runtimetest.StopPod, runtimetest.Fault{Delay: 5 * time.Second, Subject: "busy"})
		r, took := w.run(t.Context())
		w.expect(r, true, map[string]journal.Outcome{"busy": journal.Killed, "dns": journal.Stopped})
		w.expectSignals("busy0", "KILL@26s") // in the last resort, which began after 21 s
		w.expectSignals("dns0", "TERM@20.25s")
		w.expectTook(took, 26*time.Second)
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
		// It had its whole grace period, one second more, and the last resort.
		w.expectTook(took, 32*time.Second)
		w.fake.Exit("dstate0", 0)
	})
}

func TestAStopIsRetriedWhenTheRuntimeRecovers(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("web", 0, runtimetest.ContainerSpec{EndsAfter: time.Second, Labels: grace("10s")})
		down := w.fake.Inject(runtimetest.StopContainer, runtimetest.Fault{Err: runtime.ErrUnavailable})
		time.AfterFunc(5*time.Second, down.Release)
		r, _ := w.run(t.Context())
		w.expect(r, true, map[string]journal.Outcome{"web": journal.Stopped})
		calls := w.fake.Calls(runtimetest.StopContainer)
		last := calls[len(calls)-1]
		if want := 10 * time.Second; last.Grace != want {
			t.Errorf("the stop that worked had a grace of %v, want all of it, %v: nobody was asked before", last.Grace, want)
		}
		if len(calls) > 12 {
			t.Errorf("%d calls in five seconds, want a pause that grows", len(calls))
		}
	})
}

// A container does not get another grace period because its runtime did not answer.
func TestAContainerIsKilledAfterItsGraceEvenIfTheRuntimeDidNotAnswer(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.roster.Runtime = unanswered{w.fake, new(int)}
		w.pod("web", 0, runtimetest.ContainerSpec{IgnoresTERM: true, Labels: grace("5s")})
		w.run(t.Context())
		w.expectSignals("web0", "TERM@0s KILL@7.1s")
	})
}

// A runtime refuses the stop of a container whose image names a signal that does not exist.
func TestAContainerWhoseStopIsRefusedIsKilledAfterItsGrace(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.roster.Runtime = refusing{w.fake}
		w.pod("web", 0, runtimetest.ContainerSpec{Labels: grace("5s")})
		r, _ := w.run(t.Context())
		w.expect(r, true, map[string]journal.Outcome{"web": journal.Killed})
		w.expectSignals("web0", "KILL@5.5s") // at the next of its attempts
	})
}

// refusing is a runtime that refuses to send a signal other than SIGKILL.
type refusing struct{ *runtimetest.Fake }

func (f refusing) StopContainer(ctx context.Context, c runtime.Container, grace time.Duration) error {
	if grace > 0 {
		return errors.New("invalid signal: 12345")
	}
	return f.Fake.StopContainer(ctx, c, grace)
}

// unanswered is a runtime that sends the first signal, but does not answer.
type unanswered struct {
	*runtimetest.Fake
	calls *int
}

func (u unanswered) StopContainer(ctx context.Context, c runtime.Container, grace time.Duration) error {
	if *u.calls++; *u.calls > 1 {
		return u.Fake.StopContainer(ctx, c, grace)
	}
	call, cancel := context.WithTimeout(ctx, grace) // the runtime does not kill
	defer cancel()
	_ = u.Fake.StopContainer(call, c, time.Hour)
	time.Sleep(2 * time.Second)
	return fmt.Errorf("%w: no answer (%w)", runtime.ErrUnavailable, context.DeadlineExceeded)
}

func TestASandboxHoldsTheNextPhaseBackOnlyForAMoment(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("web", 0)
		w.pod("dns", plan.CriticalPriority)
		w.fake.Inject(runtimetest.StopPod, runtimetest.Fault{Hang: true})
		r, took := w.run(t.Context())
		w.expect(r, true, map[string]journal.Outcome{"web": journal.Stopped, "dns": journal.Stopped})
		w.expectTook(took, 2*time.Second) // and no wait for those of the last phase
	})
}

func TestAPhaseEndsWithOneListAndItsSandboxes(t *testing.T) {
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
		// The list that shows that the phase's containers have ended is made while their sandboxes
		// are torn down.
		w.expectSignals("dns0", fmt.Sprint("TERM@", list+time.Second+sandbox))
		// At the end, only this list is waited for.
		w.expectTook(took, list+time.Second+sandbox+time.Second+list)
		if n := len(w.fake.Calls(runtimetest.Pods)); n != 3 {
			t.Errorf("pods were listed %d times, want once before the first stop and once after each phase", n)
		}
	})
}

func TestCriticalPodsAreSkipped(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.options.SkipCritical = true
		w.pod("web", 0)
		w.pod("dns", plan.CriticalPriority)
		r, took := w.run(t.Context())
		w.expect(r, true, map[string]journal.Outcome{"web": journal.Stopped, "dns": journal.Skipped})
		w.expectSignals("dns0", "")
		w.expectTook(took, 0)
	})
}

func TestAWrongListOfARuntimeIsCorrected(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("zombie", 0, runtimetest.ContainerSpec{Unkillable: true})
		w.roster.Runtime = wrongLists{w.fake}
		r, took := w.run(t.Context())
		w.expect(r, false, map[string]journal.Outcome{"zombie": journal.Left})
		w.expectTook(took, 0)
		w.fake.Exit("zombie0", 0)
	})
}

// wrongLists is a runtime whose lists show all containers as stopped.
type wrongLists struct{ *runtimetest.Fake }

func (wrongLists) StopContainer(context.Context, runtime.Container, time.Duration) error { return nil }

func (wrongLists) StopPod(context.Context, runtime.Pod) error { return nil }

func TestProgressIsPublished(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("web", 0, runtimetest.ContainerSpec{EndsAfter: time.Second})
		w.pod("dns", plan.CriticalPriority)
		w.run(t.Context())
		var history []string
		for _, r := range w.published {
			history = append(history, fmt.Sprint(outcomes(r)))
		}
		want := []string{"map[]", "map[dns: web:]", "map[dns: web:stopped]", "map[dns: web:stopped]", "map[dns:stopped web:stopped]", "map[dns:stopped web:stopped]"}
		if !slices.Equal(history, want) {
			t.Errorf("published %q, want %q", history, want)
		}
	})
}

func TestRosterKeepsWhatOneRuntimeDoesNotReport(t *testing.T) {
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

// lister is a runtime of which a test needs only the list.
type lister struct {
	pods func() ([]runtime.Pod, error)
}

func (l lister) Pods(context.Context) ([]runtime.Pod, error) { return l.pods() }
func (lister) StopContainer(context.Context, runtime.Container, time.Duration) error {
	panic("not expected")
}
func (lister) StopPod(context.Context, runtime.Pod) error { panic("not expected") }
