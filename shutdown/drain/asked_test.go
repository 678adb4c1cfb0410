package drain_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/runtimetest"
	"hostler.io/hostler/shutdown/journal"
)

// A container that can be started again is recorded with its stop signal, because the power may
// fail right after it.
func TestStopRequestsAreRecorded(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("shop", 5,
			runtimetest.ContainerSpec{EndsAfter: 2 * time.Second, StopsBefore: []string{"shop1"}, Restart: runtime.RestartUnlessStopped, Restarting: true},
			runtimetest.ContainerSpec{EndsAfter: time.Second, Restart: runtime.RestartNever})
		w.pod("plain", 0, runtimetest.ContainerSpec{EndsAfter: time.Second}) // as from a CRI runtime
		w.run(t.Context())
		var seen []string
		for _, r := range w.published {
			for _, p := range r.Pods {
				var asked []string
				for id, at := range p.Asked {
					text := "-"
					if !at.IsZero() {
						text = at.Sub(w.began).String()
					}
					asked = append(asked, id+"@"+text)
				}
				slices.Sort(asked)
				seen = append(seen, fmt.Sprintf("%s%v", p.Name, asked))
			}
		}
		slices.Sort(seen)
		seen = slices.Compact(seen)
		want := "plain[] shop[] shop[shop0@0s shop1@-] shop[shop0@0s shop1@2s]"
		if got := strings.Join(seen, " "); got != want && got != strings.Replace(want, "shop[] ", "", 1) {
			t.Errorf("published %s, want %s", got, want)
		}
		for _, p := range w.published[len(w.published)-1].Pods {
			if began, noted := p.Runs["shop0"]; noted != (p.Name == "shop") || noted && (!began.Equal(w.began) || len(p.Runs) != 2) {
				t.Errorf("record of %s = %v, want of those that were asked when they began to run", p.Name, p.Runs)
			}
		}
		for _, p := range w.published[len(w.published)-1].Pods {
			if want := map[string]string{"shop0": "c0", "shop1": "c1"}; p.Name == "shop" && !maps.Equal(p.Names, want) {
				t.Errorf("record of %s has the names %v, want %v", p.Name, p.Names, want)
			}
		}
		if p := w.published[len(w.published)-1].Pods; p[0].Priority+p[1].Priority != 5 || !slices.Equal(slices.Concat(p[0].Restarting, p[1].Restarting), []string{"shop0"}) {
			t.Errorf("record = %+v, want the pods' priorities, and who was restarting", p)
		}
	})
}

// Hostler does not start what its unit starts, or what must stay stopped.
func TestContainersThatAUnitOrNothingStartsAreRecorded(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("web", 0, runtimetest.ContainerSpec{Restart: runtime.RestartByUnit}, runtimetest.ContainerSpec{Restart: runtime.RestartNever},
			runtimetest.ContainerSpec{Restart: runtime.RestartNotAtBoot}, runtimetest.ContainerSpec{Restart: runtime.RestartUnlessStopped})
		r, _ := w.run(t.Context())
		if !slices.Equal(r.Pods[0].ByUnit, []string{"web0"}) {
			t.Errorf("record says %v of units, want web0", r.Pods[0].ByUnit)
		}
		if want := map[string]string{"web1": "never", "web2": "not-at-boot"}; !maps.Equal(r.Pods[0].NotRestarted, want) {
			t.Errorf("record says that nobody starts %v, want %v", r.Pods[0].NotRestarted, want)
		}
	})
}

// After a boot, hostler must not wait for containers that their runtime cannot start again.
func TestContainersThatRunOnceAreRecorded(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("hand", 0, runtimetest.ContainerSpec{Restart: runtime.RestartElsewhere})
		w.pod("web", 0, runtimetest.ContainerSpec{Restart: runtime.RestartNever})
		r, _ := w.run(t.Context())
		for _, p := range r.Pods {
			if p.Once != (p.Name == "hand") {
				t.Errorf("record of %s says that it runs once: %t", p.Name, p.Once)
			}
		}
	})
}

// A timer or a user may start a stopped container again. It keeps its ID.
func TestAContainerThatIsStartedAgainIsStoppedAgain(t *testing.T) {
	for name, reported := range map[string]bool{"the drain lists": false, "somebody else lists": true} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.asDocker()
				w.pod("web", 0, runtimetest.ContainerSpec{EndsAfter: time.Second, Restart: runtime.RestartUnlessStopped})
				w.pod("slow", 0, runtimetest.ContainerSpec{EndsAfter: 12 * time.Second})
				for _, after := range []time.Duration{5 * time.Second, 9 * time.Second} {
					time.AfterFunc(after, func() { w.start("web0") })
				}
				if reported {
					for half := range 23 {
						time.AfterFunc(time.Duration(half)*time.Second/2, func() { w.roster.Set(w.list()) })
					}
				}
				r, took := w.run(t.Context())
				w.expect(r, true, map[string]journal.Outcome{"web": journal.Stopped, "slow": journal.Stopped})
				w.expectSignals("web0", "TERM@0s TERM@6s TERM@10s")
				w.expectSignals("slow0", "TERM@0s")
				w.expectTook(took, 12*time.Second)
				if len(r.Pods[0].Asked) != 1 {
					t.Errorf("record = %+v, want also those on it whose policy nobody knows yet", r.Pods[0])
				}
				if asked := r.Pods[1].Asked["web0"]; asked.Sub(w.began) != 10*time.Second {
					t.Errorf("web was asked at %v, want the last time on record", asked.Sub(w.began))
				}
			})
		})
	}
}

// Otherwise a container that had ended before would be recorded as stopped by the drain.
func TestAnOldListCausesNoSecondStop(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.asDocker()
		w.pod("web", 0, runtimetest.ContainerSpec{EndsAfter: time.Second, Restart: runtime.RestartUnlessStopped})
		w.pod("slow", 0, runtimetest.ContainerSpec{EndsAfter: 12 * time.Second})
		before := w.list()
		time.AfterFunc(3*time.Second, func() { w.roster.Set(w.list()) })
		time.AfterFunc(5*time.Second, func() { w.roster.Set(before) })
		r, _ := w.run(t.Context())
		w.expectSignals("web0", "TERM@0s")
		for _, p := range r.Pods {
			if asked := p.Asked["web0"]; p.Name == "web" && !asked.Equal(w.began) {
				t.Errorf("web was asked at %v, want the beginning on record", asked.Sub(w.began))
			}
		}
	})
}

// asDocker makes the runtime one whose containers can be started again.
func (w *world) asDocker() {
	w.fake = runtimetest.NewFake(runtimetest.Options{NoSandboxes: true})
	w.fake.AddImage(runtimetest.ImageSpec{ID: "image"})
	w.roster.Runtime = w.fake
}

func (w *world) start(container string) {
	if err := w.fake.StartContainer(w.t.Context(), runtime.Container{ID: container}); err != nil {
		w.t.Error(err)
	}
}

// list returns the pods that the runtime lists now.
func (w *world) list() []runtime.Pod {
	pods, err := w.fake.Pods(w.t.Context())
	if err != nil {
		w.t.Error(err)
	}
	return pods
}
