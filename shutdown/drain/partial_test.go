package drain_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/runtimetest"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/shutdown/plan"
)

// besideOneThatGoesAway adds another runtime without pods, which does not answer after a time.
func (w *world) besideOneThatGoesAway(after time.Duration) {
	other := runtimetest.NewFake(runtimetest.Options{Name: "other"})
	both, err := runtime.NewSet(w.fake, other)
	if err != nil {
		w.t.Fatal(err)
	}
	w.roster.Runtime = both
	time.AfterFunc(after, func() { other.Inject(runtimetest.Every, runtimetest.Fault{Err: runtime.ErrUnavailable}) })
}

// The answer of one runtime is used, even if another does not answer.
func TestARuntimesAnswerCountsWhileAnotherIsUnreachable(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("web", 0, runtimetest.ContainerSpec{EndsAfter: 3 * time.Second})
		w.pod("dns", plan.CriticalPriority)
		w.besideOneThatGoesAway(2500 * time.Millisecond)
		r := w.endAndGoOn(func() {
			w.fake.Exit("dns0", 3)
			time.Sleep(2 * time.Second)
		}, 2*time.Second)
		// One process has seen both pods, and the next one sees that both have ended.
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

func TestARestartedContainerIsStoppedWhileAnotherRuntimeIsUnreachable(t *testing.T) {
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

// Its unit may have started it between two processes. Then it is another run than the stopped one.
func TestAContainerThatRestartedBetweenTwoProcessesIsStopped(t *testing.T) {
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

// If IDs are names, as in runc, they can be reused when the container is removed. The runtime does
// not report when such a container was started.
func TestAContainerThatReusesANameIsStopped(t *testing.T) {
	for name, c := range map[string]struct {
		ends, taken time.Duration
		between     time.Duration // time between the end of the process and the start of the next; negative if there is no next
		priority    int32
		want        string
	}{
		"between two lists":                 {time.Second, 1500 * time.Millisecond, -1, 0, "TERM@0s TERM@2s"},
		"between two processes":             {time.Second, 1500 * time.Millisecond, time.Second, 0, "TERM@0s TERM@2s"},
		"while its end is awaited":          {1100 * time.Millisecond, 1200 * time.Millisecond, 0, 0, "TERM@0s TERM@2s"},
		"while its end is awaited, at last": {1100 * time.Millisecond, 1200 * time.Millisecond, 0, plan.CriticalPriority, "TERM@0s TERM@2s"},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.asDocker()
				w.roster.Runtime = byName{w.fake}
				w.pod("web", c.priority, runtimetest.ContainerSpec{EndsAfter: c.ends, Restart: runtime.RestartElsewhere})
				w.pod("slow", c.priority, runtimetest.ContainerSpec{EndsAfter: 9 * time.Second})
				time.AfterFunc(c.taken, func() {
					if err := w.fake.RemoveContainer(t.Context(), runtime.Container{ID: "web0"}); err != nil {
						t.Error(err)
					}
					w.pod("web", c.priority, runtimetest.ContainerSpec{EndsAfter: 3 * time.Second, Restart: runtime.RestartElsewhere})
				})
				var r *journal.Record
				if c.between < 0 {
					r, _ = w.run(t.Context())
				} else {
					r = w.endAndGoOn(func() { time.Sleep(c.between) }, 500*time.Millisecond)
				}
				w.expect(r, true, map[string]journal.Outcome{"web": journal.Stopped, "slow": journal.Stopped})
				w.expectSignals("web0", c.want)
				w.expectSignals("slow0", "TERM@0s")
			})
		})
	}
}

// byName is a runtime whose IDs are names. It does not report when a container was started, and
// stops only the listed one.
type byName struct{ *runtimetest.Fake }

func (b byName) Pods(ctx context.Context) ([]runtime.Pod, error) {
	pods, err := b.Fake.Pods(ctx)
	for _, p := range pods {
		for i := range p.Containers {
			p.Containers[i].StartedAt = time.Time{}
		}
	}
	return pods, err
}

func (b byName) is(ctx context.Context, c runtime.Container) bool {
	pods, _ := b.Pods(ctx)
	return slices.ContainsFunc(pods, func(p runtime.Pod) bool {
		return slices.ContainsFunc(p.Containers, func(now runtime.Container) bool { return now.ID == c.ID && now.CreatedAt.Equal(c.CreatedAt) })
	})
}

func (b byName) StopContainer(ctx context.Context, c runtime.Container, grace time.Duration) error {
	if !b.is(ctx, c) {
		return nil
	}
	return b.Fake.StopContainer(ctx, c, grace)
}

func (b byName) StopPod(ctx context.Context, p runtime.Pod) error {
	if !slices.ContainsFunc(p.Containers, func(c runtime.Container) bool { return b.is(ctx, c) }) {
		return nil
	}
	return b.Fake.StopPod(ctx, p)
}

// If the clock was set back since, for example because the boot used local time as UTC, a container
// is not new.
func TestAContainerCreatedInTheFutureIsStoppedOnce(t *testing.T) {
	for name, run := range map[string]func(*world){
		"by two processes": func(w *world) { w.endAndGoOn(func() {}, 2*time.Second) },
		"by one that gets an old list": func(w *world) {
			before := w.list()
			time.AfterFunc(3*time.Second, func() { w.roster.Set(before) })
			w.run(w.t.Context())
		},
		"by one whose runtime is wrong about its end": func(w *world) {
			w.roster.Runtime = wrong{w.fake}
			w.run(w.t.Context())
			w.fake.Exit("web0", 0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.asDocker()
				w.pod("web", 0, runtimetest.ContainerSpec{EndsAfter: 5 * time.Second, CreatedAt: time.Now().Add(time.Hour), Restart: runtime.RestartUnlessStopped})
				w.pod("slow", 0, runtimetest.ContainerSpec{EndsAfter: 12 * time.Second})
				run(w)
				if got := w.signals("web0"); got != "TERM@0s" && got != "" {
					t.Errorf("container web0 got %q, want it asked once", got)
				}
				if stops := w.asked(runtimetest.StopContainer, "web0"); stops > 2 { // a process that ends abandons its call
					t.Errorf("its runtime received %d stop requests", stops)
				}
			})
		})
	}
}

// wrong is a runtime that reports a container as stopped that is still running.
type wrong struct{ *runtimetest.Fake }

func (w wrong) StopContainer(ctx context.Context, c runtime.Container, grace time.Duration) error {
	if c.ID != "web0" {
		return w.Fake.StopContainer(ctx, c, grace)
	}
	call, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	_ = w.Fake.StopContainer(call, c, time.Hour)
	return nil
}

func (w wrong) StopPod(ctx context.Context, p runtime.Pod) error { return nil }

// After a restart, containerd loses track of a container whose shim is slow to answer.
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

// A process that starts after the last phase, or near its end, has no time for containers without a
// stop request. A stop would kill them. When the service stops later, they have time.
func TestNoContainerIsKilledWithoutAStopSignalAfterTheLastPhase(t *testing.T) {
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
			w.expect(r, true, map[string]journal.Outcome{"web": journal.Killed, "dns": journal.Stopped}) // its other container was killed
			w.expectSignals("web0", "TERM@"+asked.String())
		})
	}
}

// If a container of a pod was killed and the shutdown is cancelled before the others are stopped,
// the pod keeps running.
func TestAPartlyStoppedPodIsLeftByACancellation(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("web", 0, runtimetest.ContainerSpec{EndsAfter: time.Second}, runtimetest.ContainerSpec{IgnoresTERM: true})
		w.pod("slow", 0, runtimetest.ContainerSpec{IgnoresTERM: true})
		down := w.fake.Inject(runtimetest.StopContainer, runtimetest.Fault{Err: runtime.ErrUnavailable, Subject: "web0"})
		ctx, end := context.WithCancel(t.Context())
		time.AfterFunc(15*time.Second, end)
		d := w.drain()
		d.Run(ctx)
		<-d.Idle()
		time.Sleep(6 * time.Second)
		down.Release()
		w.options.Record = w.published[len(w.published)-1].Clone()
		w.fake.Inject(runtimetest.StopContainer, runtimetest.Fault{Delay: 400 * time.Millisecond, Subject: "slow0"})
		d = w.drain()
		time.AfterFunc(200*time.Millisecond, d.Cancel)
		d.Run(t.Context())
		<-d.Idle()
		if got := outcomes(d.Record())["web"]; got != journal.Left || w.signals("web0") != "" {
			t.Errorf("outcome of web = %s, its signals %q, want it left and unasked", got, w.signals("web0"))
		}
	})
}

func TestCriticalPodsAreSkippedEvenIfLittleTimeIsLeft(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.options.SkipCritical, w.options.Start = true, time.Now().Add(-30*time.Second)
		w.pod("dns", plan.CriticalPriority)
		r, _ := w.run(t.Context())
		w.expect(r, true, map[string]journal.Outcome{"dns": journal.Skipped})
	})
}
