package drain_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"hostler.io/hostler/internal/bounded"
	"hostler.io/hostler/runtime/runtimetest"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/shutdown/plan"
)

// ordered sets the order of services after units. Each service takes that long to stop. It returns
// a function that returns what was stopped, and when.
func (w *world) ordered(order map[string][]string, takes time.Duration) (stops func() string) {
	var noted []string
	note := func(what string) {
		w.mu.Lock()
		defer w.mu.Unlock()
		noted = append(noted, fmt.Sprint(what, "@", time.Since(w.began)))
	}
	w.options.UnitStops = func(_ context.Context, names []string) error { note("report " + strings.Join(names, " ")); return nil }
	w.options.First.Services = &services{
		order: func(_ context.Context, units []string) (map[string][]string, error) { return order, nil },
		stop: func(ctx context.Context, name string) (bool, error) {
			note("stop " + name)
			_ = bounded.Sleep(ctx, takes)
			return true, context.Cause(ctx)
		},
	}
	return func() string {
		w.mu.Lock()
		defer w.mu.Unlock()
		return strings.Join(noted, ", ")
	}
}

func TestServicesThatAreOrderedAfterAContainerStopBeforeIt(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("db", 0, runtimetest.ContainerSpec{Unit: "db.service"})
		w.pod("alone", 0)
		stops := w.ordered(map[string][]string{
			"db.service": {"app.service", "web.service", "fake.service"}, "app.service": {"web.service"}, "fake.service": {},
		}, 2*time.Second)
		r, _ := w.run(t.Context())
		w.expect(r, true, map[string]journal.Outcome{"db": journal.Stopped, "alone": journal.Stopped})
		if got, want := stops(), "report web.service@0s, stop web.service@0s, report app.service@2s, stop app.service@2s"; got != want {
			t.Errorf("asked %q, want %q", got, want)
		}
		w.expectSignals("db0", "TERM@4s")
		w.expectSignals("alone0", "TERM@0s")
	})
}

func TestServicesOfARuntimeStopBeforeItsContainers(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("one", 0)
		w.pod("two", plan.CriticalPriority)
		w.pod("app", 0, runtimetest.ContainerSpec{Unit: "app.service"}) // its unit is ordered after its runtime, like all
		stops := w.ordered(map[string][]string{"fake.service": {"app.service", "exporter.service"}}, 3*time.Second)
		r, _ := w.run(t.Context())
		w.expect(r, true, map[string]journal.Outcome{"one": journal.Stopped, "two": journal.Stopped, "app": journal.Stopped})
		if got, want := stops(), "report exporter.service@0s, stop exporter.service@0s"; got != want {
			t.Errorf("asked %q, want %q", got, want)
		}
		w.expectSignals("one0", "TERM@3s")
		w.expectSignals("app0", "TERM@0s")
	})
}

func TestContainersOfOrderedUnitsStopInOrder(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("db", 0, runtimetest.ContainerSpec{Unit: "db.service"})
		w.pod("app", 0, runtimetest.ContainerSpec{Unit: "app.service", EndsAfter: 3 * time.Second})
		w.ordered(map[string][]string{"db.service": {"app.service"}}, 0)
		w.run(t.Context())
		w.expectSignals("app0", "TERM@0s")
		w.expectSignals("db0", "TERM@3s")
	})
}

func TestAContainerLeavesTimeToTheOneThatItsUnitIsOrderedAfter(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("db", 0, runtimetest.ContainerSpec{Unit: "db.service", EndsAfter: 5 * time.Second})
		w.pod("app", 0, runtimetest.ContainerSpec{Unit: "app.service", IgnoresTERM: true})
		w.ordered(map[string][]string{"db.service": {"app.service"}}, 0)
		r, _ := w.run(t.Context())
		w.expectSignals("app0", "TERM@0s KILL@10s") // half of the phase
		w.expectSignals("db0", "TERM@10s")
		w.expect(r, true, map[string]journal.Outcome{"app": journal.Killed, "db": journal.Stopped})
	})
}

func TestWhatACriticalUnitNeedsStopsAfterIt(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("db", 0, runtimetest.ContainerSpec{Unit: "db.service"})
		w.pod("web", 0, runtimetest.ContainerSpec{EndsAfter: 2 * time.Second})
		w.pod("vpn", plan.CriticalPriority, runtimetest.ContainerSpec{Unit: "vpn.service", EndsAfter: 3 * time.Second})
		w.ordered(map[string][]string{"db.service": {"vpn.service"}}, 0)
		r, _ := w.run(t.Context())
		w.expectSignals("web0", "TERM@0s")
		w.expectSignals("vpn0", "TERM@2s")
		w.expectSignals("db0", "TERM@5s")
		for _, p := range r.Pods {
			if p.Name == "db" && p.Phase != "critical" {
				t.Errorf("db is on record in phase %s, want critical", p.Phase)
			}
		}
	})
}

func TestAServiceThatDoesNotStopDelaysItsContainersForAWhile(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("db", 0, runtimetest.ContainerSpec{Unit: "db.service", IgnoresTERM: true})
		w.ordered(map[string][]string{"db.service": {"app.service"}}, time.Hour)
		r, _ := w.run(t.Context())
		w.expectSignals("db0", "TERM@5s KILL@20s") // a quarter of its phase
		w.expect(r, true, map[string]journal.Outcome{"db": journal.Killed})
	})
}

func TestACircleOfServicesEnds(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("a", 0, runtimetest.ContainerSpec{Unit: "a.service"})
		w.pod("b", 0, runtimetest.ContainerSpec{Unit: "b.service"})
		w.ordered(map[string][]string{"a.service": {"b.service", "x.service"}, "b.service": {"a.service"}, "x.service": {"y.service"}, "y.service": {"x.service"}}, time.Second)
		r, _ := w.run(t.Context())
		w.expectSignals("b0", "TERM@0s")
		w.expectSignals("a0", "TERM@5s") // x and y have a quarter of the phase
		w.expect(r, true, map[string]journal.Outcome{"a": journal.Stopped, "b": journal.Stopped})
	})
}

func TestASystemdThatDoesNotAnswerDelaysNoStop(t *testing.T) {
	for name, order := range map[string]func(ctx context.Context, _ []string) (map[string][]string, error){
		"it fails": func(context.Context, []string) (map[string][]string, error) { return nil, errors.New("refused") },
		"it hangs": func(ctx context.Context, _ []string) (map[string][]string, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.pod("db", 0, runtimetest.ContainerSpec{Unit: "db.service"})
				w.options.First.Services = &services{order: order}
				r, _ := w.run(t.Context())
				w.expect(r, true, map[string]journal.Outcome{"db": journal.Stopped})
				if got := w.signals("db0"); got != "TERM@0s" && got != "TERM@500ms" {
					t.Errorf("db got %q, want the stop signal after at most half a second", got)
				}
			})
		})
	}
}

func TestNobodyIsStoppedOnceAShutdownIsCancelled(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("db", 0, runtimetest.ContainerSpec{Unit: "db.service"})
		stops := w.ordered(map[string][]string{"db.service": {"app.service", "web.service"}, "app.service": {"web.service"}}, 3*time.Second)
		d := w.drain()
		time.AfterFunc(time.Second, d.Cancel)
		d.Run(t.Context())
		<-d.Idle()
		w.expectSignals("db0", "")
		if got, want := stops(), "report web.service@0s, stop web.service@0s"; got != want {
			t.Errorf("asked %q, want %q", got, want)
		}
	})
}
