package drain_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/runtimetest"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/shutdown/plan"
)

func TestSandboxesGoOneAtATimeWhileContainersAreBeingStopped(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		const quick, long = 20, 5500 * time.Millisecond
		for i := range quick {
			w.pod(fmt.Sprint("web", i), 0)
		}
		w.pod("db", 0, runtimetest.ContainerSpec{EndsAfter: long})
		w.fake.Inject(runtimetest.StopPod, runtimetest.Fault{Delay: time.Second})
		r, _ := w.run(t.Context())
		if !r.Graceful || len(r.Pods) != quick+1 {
			t.Errorf("record = %+v, want it graceful with %d pods", r, quick+1)
		}
		started := map[time.Duration]int{}
		for _, c := range w.fake.Calls(runtimetest.StopPod) {
			started[c.Start.Sub(w.began)]++
		}
		for second := range 6 {
			if at := time.Duration(second) * time.Second; started[at] != 1 {
				t.Errorf("%d sandboxes were begun at %v, want one: %v", started[at], at, started)
			}
		}
		if rest := quick + 1 - 6; started[long] != rest {
			t.Errorf("%d sandboxes were begun with the last container gone, want the %d that waited: %v", started[long], rest, started)
		}
	})
}

func TestASandboxThatHangsHoldsNoOtherBackBeyondThePhase(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("web", 0)
		w.pod("api", 0)
		w.pod("db", 0, runtimetest.ContainerSpec{EndsAfter: 3 * time.Second})
		w.fake.Inject(runtimetest.StopPod, runtimetest.Fault{Hang: true})
		w.run(t.Context())
		for _, c := range w.fake.Calls(runtimetest.StopPod) {
			if late := c.Start.Sub(w.began); late > 3*time.Second {
				t.Errorf("the sandbox of %s was begun after %v, want it with the last container at the latest", c.Subject, late)
			}
		}
		if n := len(w.fake.Calls(runtimetest.StopPod)); n != 3 {
			t.Errorf("%d sandboxes were begun, want 3", n)
		}
	})
}

// The teardown of a sandbox kills its containers.
func TestANewContainerInAPodDoesNotShortenTheGraceOfOthers(t *testing.T) {
	for name, fault := range map[string]runtimetest.Fault{
		"and ends":            {Subject: "none"},
		"and does not end":    {Hang: true, Subject: "late"},
		"and cannot be asked": {Err: errors.New("denied"), Subject: "late"},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.pod("web", 0, runtimetest.ContainerSpec{EndsAfter: 15 * time.Second, Labels: grace("60s")})
				w.fake.Inject(runtimetest.StopContainer, fault)
				time.AfterFunc(2*time.Second, func() {
					w.fake.AddContainer("web", runtimetest.ContainerSpec{ID: "late", Name: "late", Image: "image", Labels: grace("1s")})
				})
				r, _ := w.run(t.Context())
				w.expectSignals("web0", "TERM@0s")
				if _, ended := outcomes(r)["web"]; !ended || len(w.fake.Calls(runtimetest.StopPod)) == 0 {
					t.Errorf("record = %+v after %d teardowns, want the pod torn down", r, len(w.fake.Calls(runtimetest.StopPod)))
				}
			})
		})
	}
}

// The same for a pod whose containers have ended and whose sandbox waits for teardown.
func TestANewContainerInAPodWaitingForTeardownHasItsGrace(t *testing.T) {
	for name, cancelled := range map[string]bool{"to the end": false, "until the shutdown is cancelled": true} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.pod("first", 0)
				w.pod("web", 0, runtimetest.ContainerSpec{EndsAfter: time.Second})
				w.pod("slow", 0, runtimetest.ContainerSpec{EndsAfter: 19 * time.Second, Labels: grace("60s")})
				w.fake.Inject(runtimetest.StopPod, runtimetest.Fault{Delay: 9 * time.Second, Subject: "first"})
				time.AfterFunc(3*time.Second, func() {
					w.fake.AddContainer("web", runtimetest.ContainerSpec{ID: "late", Name: "late", Image: "image", EndsAfter: 12 * time.Second, Labels: grace("60s")})
				})
				d := w.drain()
				if cancelled {
					time.AfterFunc(8*time.Second, d.Cancel)
				}
				d.Run(t.Context())
				<-d.Idle()
				w.expectSignals("late", "TERM@4s")
				w.fake.Exit("late", 0)
			})
		})
	}
}

// The same near the end of a phase: the new container has its grace period in the next phase.
func TestANewContainerAtTheEndOfAPhaseIsStoppedInTheNext(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("web", 0, runtimetest.ContainerSpec{EndsAfter: 19500 * time.Millisecond, Labels: grace("60s")})
		time.AfterFunc(17500*time.Millisecond, func() {
			w.fake.AddContainer("web", runtimetest.ContainerSpec{ID: "late", Name: "late", Image: "image", EndsAfter: time.Second})
		})
		r, _ := w.run(t.Context())
		w.expect(r, true, map[string]journal.Outcome{"web": journal.Stopped})
		w.expectSignals("late", "TERM@19.5s")
		if n := len(w.fake.Calls(runtimetest.StopPod)); n != 1 {
			t.Errorf("the sandbox was torn down %d times, want once, in the end", n)
		}
	})
}

func TestASlowKillIsNotBrokenOffWhileOthersStop(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("stubborn", 0, runtimetest.ContainerSpec{IgnoresTERM: true, Labels: grace("60s")})
		w.pod("critical", plan.CriticalPriority, runtimetest.ContainerSpec{EndsAfter: 8 * time.Second})
		w.fake.Inject(runtimetest.StopContainer, runtimetest.Fault{Hang: true, Subject: "stubborn0"})
		w.fake.Inject(runtimetest.StopPod, runtimetest.Fault{Delay: 5 * time.Second, Subject: "stubborn"})
		r, took := w.run(t.Context())
		w.expect(r, true, map[string]journal.Outcome{"stubborn": journal.Killed, "critical": journal.Stopped})
		if took > 30*time.Second {
			t.Errorf("Run() took %v, want no more than the 30s of all phases", took)
		}
	})
}

// If the runtime does not answer the last list, its answer to the teardown counts.
func TestASandboxThatIsGoneTookItsContainersAlong(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("hung", 0)
		w.fake.Inject(runtimetest.StopContainer, runtimetest.Fault{Hang: true, Subject: "hung0"})
		time.AfterFunc(10*time.Second, func() { w.fake.Inject(runtimetest.Pods, runtimetest.Fault{Hang: true}) })
		r, _ := w.run(t.Context())
		w.expect(r, true, map[string]journal.Outcome{"hung": journal.Killed})
		w.expectSignals("hung0", "KILL@21s")
	})
}

// The runtime's error already names the operation and the object.
func TestAStopThatFailsIsNamedOnce(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("web", 0)
		w.roster.Runtime = refuser{w.fake}
		r, _ := w.run(t.Context())
		if got, want := r.Pods[0].Error, `stop container "web0" (1f2e): denied`; got != want {
			t.Errorf("Run() recorded %q, want %q", got, want)
		}
		w.fake.Exit("web0", 0)
	})
}

// refuser is a runtime that stops nothing.
type refuser struct{ *runtimetest.Fake }

func (refuser) StopContainer(_ context.Context, c runtime.Container, _ time.Duration) error {
	return fmt.Errorf("stop container %q (1f2e): denied", c.ID)
}
func (refuser) StopPod(context.Context, runtime.Pod) error { return errors.New("denied") }
