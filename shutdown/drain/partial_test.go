package drain_test

import (
	"context"
	"testing"
	"time"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/runtimetest"
	"hostler.io/hostler/shutdown/drain"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/shutdown/plan"
)

// besideOneThatGoesAway has another runtime in the world, without pods, that does not answer
// from then on.
func (w *world) besideOneThatGoesAway(after time.Duration) {
	other := runtimetest.NewFake(runtimetest.Options{Name: "other"})
	both, err := runtime.NewSet(w.fake, other)
	if err != nil {
		w.t.Fatal(err)
	}
	w.roster.Runtime = both
	time.AfterFunc(after, func() { other.Inject(runtimetest.Every, runtimetest.Fault{Err: runtime.ErrUnavailable}) })
}

// What one runtime tells holds, whoever else is silent.
func TestARuntimeIsBelievedWhileAnotherOneIsAway(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("web", 0, runtimetest.ContainerSpec{EndsAfter: 3 * time.Second})
		w.pod("dns", plan.CriticalPriority)
		w.besideOneThatGoesAway(2500 * time.Millisecond)
		r := w.endAndGoOn(func() {
			w.fake.Exit("dns0", 3)
			time.Sleep(2 * time.Second)
		}, 2*time.Second)
		// One process has seen all, and the next one that all of them have ended.
		want := map[string]journal.Outcome{"web": journal.Stopped, "dns": journal.Stopped}
		for name, got := range outcomes(r) {
			if got != want[name] {
				t.Errorf("outcome of %s = %s, want %s", name, got, want[name])
			}
		}
		if len(r.Pods) != 2 || r.Pods[1].ExitCodes["c0"] != 3 {
			t.Errorf("record = %+v, want both pods, and how dns ended", r.Pods)
		}
	})
}

func TestWhoIsStartedAgainWhileARuntimeIsAwayIsAskedAgain(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.asDocker()
		w.pod("web", 0, runtimetest.ContainerSpec{EndsAfter: time.Second, Restart: runtime.RestartUnlessStopped})
		w.pod("slow", 0, runtimetest.ContainerSpec{EndsAfter: 12 * time.Second})
		w.besideOneThatGoesAway(500 * time.Millisecond)
		time.AfterFunc(5*time.Second, func() { w.start("web0") })
		r, _ := w.run(t.Context())
		w.expect(r, true, map[string]journal.Outcome{"web": journal.Stopped, "slow": journal.Stopped})
		w.expectSignals("web0", "TERM@0s TERM@6s")
	})
}

// Its unit may have done so between two processes: the run that was asked is another one.
func TestWhoIsStartedAgainBetweenTwoProcessesIsAskedAgain(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.asDocker()
		w.pod("web", 0, runtimetest.ContainerSpec{EndsAfter: time.Second, Restart: runtime.RestartUnlessStopped})
		w.pod("slow", 0, runtimetest.ContainerSpec{EndsAfter: 12 * time.Second})
		r := w.endAndGoOn(func() {
			time.Sleep(time.Second)
			w.start("web0")
			time.Sleep(time.Second)
		}, 500*time.Millisecond)
		w.expect(r, true, map[string]journal.Outcome{"web": journal.Stopped, "slow": journal.Stopped})
		w.expectSignals("web0", "TERM@0s TERM@3s")
		w.expectSignals("slow0", "TERM@0s")
	})
}

// containerd loses track of a container whose shim is slow to answer it after a restart.
func TestAContainerThatItsRuntimeHasLostTrackOfKeepsItsGrace(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("web", 0, runtimetest.ContainerSpec{EndsAfter: 9 * time.Second})
		w.pod("lost", 0, runtimetest.ContainerSpec{EndsAfter: 2 * time.Second})
		w.fake.SetState("lost0", runtime.Unknown)
		r := w.endAndGoOn(func() {
			time.AfterFunc(time.Second, func() { w.fake.SetState("web0", runtime.Unknown) })
			time.AfterFunc(5*time.Second, func() { w.fake.SetState("web0", runtime.Running) })
		}, 2500*time.Millisecond)
		w.expect(r, true, map[string]journal.Outcome{"web": journal.Stopped, "lost": journal.Stopped})
		w.expectSignals("web0", "TERM@0s")
		w.expectSignals("lost0", "TERM@0s")
		if ended := r.Pods[1].FinishedAt.Sub(w.began); ended < 9*time.Second {
			t.Errorf("web is said to have ended after %v, want after its 9s", ended)
		}
	})
}

// A process that comes when the last phase is over, or nearly, has no time for whom nobody
// has asked: to stop him then is to kill him. The service stops later, with time anew.
func TestNobodyIsKilledUnaskedAfterTheLastPhase(t *testing.T) {
	for _, comes := range []time.Duration{29800 * time.Millisecond, 31 * time.Second} {
		inWorld(t, func(t *testing.T, w *world) {
			w.pod("web", 0, runtimetest.ContainerSpec{EndsAfter: time.Second}, runtimetest.ContainerSpec{IgnoresTERM: true})
			w.pod("dns", plan.CriticalPriority, runtimetest.ContainerSpec{EndsAfter: time.Second})
			down := w.fake.Inject(runtimetest.StopContainer, runtimetest.Fault{Err: runtime.ErrUnavailable, Subject: "web0"})
			r := w.endAndGoOn(func() {
				time.Sleep(time.Until(w.began.Add(comes)))
				down.Release()
			}, 15*time.Second)
			w.expect(r, false, map[string]journal.Outcome{"web": journal.Left, "dns": journal.Left})
			w.expectSignals("web0", "")
			w.expectSignals("dns0", "")
			w.options.Record, w.options.Start = r, time.Now()
			asked := time.Since(w.began)
			r, _ = w.run(t.Context())
			w.expect(r, true, map[string]journal.Outcome{"web": journal.Stopped, "dns": journal.Stopped})
			w.expectSignals("web0", "TERM@"+asked.String())
		})
	}
}

// A pod of which one container was killed runs on, if the shutdown is cancelled before the
// others' turn comes.
func TestAPodWhoseOthersWereNotAskedYetIsLeftByACancellation(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("web", 0, runtimetest.ContainerSpec{EndsAfter: time.Second}, runtimetest.ContainerSpec{IgnoresTERM: true})
		w.pod("slow", 0, runtimetest.ContainerSpec{IgnoresTERM: true})
		down := w.fake.Inject(runtimetest.StopContainer, runtimetest.Fault{Err: runtime.ErrUnavailable, Subject: "web0"})
		ctx, end := context.WithCancel(t.Context())
		time.AfterFunc(15*time.Second, end)
		d := drain.New(w.options)
		d.Run(ctx)
		<-d.Idle()
		time.Sleep(6 * time.Second)
		down.Release()
		w.options.Record = w.published[len(w.published)-1].Clone()
		w.fake.Inject(runtimetest.StopContainer, runtimetest.Fault{Delay: 400 * time.Millisecond, Subject: "slow0"})
		d = drain.New(w.options)
		time.AfterFunc(200*time.Millisecond, d.Cancel)
		d.Run(t.Context())
		<-d.Idle()
		if got := outcomes(d.Record())["web"]; got != journal.Left || w.signals("web0") != "" {
			t.Errorf("outcome of web = %s, its signals %q, want it left and unasked", got, w.signals("web0"))
		}
	})
}

func TestWhoIsSparedIsSkippedHoweverLittleTimeIsLeft(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.options.SpareCritical, w.options.Start = true, time.Now().Add(-30*time.Second)
		w.pod("dns", plan.CriticalPriority)
		r, _ := w.run(t.Context())
		w.expect(r, true, map[string]journal.Outcome{"dns": journal.Skipped})
	})
}
