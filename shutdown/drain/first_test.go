package drain_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/internal/bounded"
	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/runtimetest"
	"hostler.io/hostler/shutdown/drain"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/shutdown/plan"
)

// services are the services of a host. Each is running unless a test says otherwise, and its stop
// is a function of the test.
type services struct {
	runs  func(name string) bool // nil if all do
	stop  func(ctx context.Context, name string) (bool, error)
	adopt func(ctx context.Context, listed, recorded []runtime.Pod) map[string]string
	order func(ctx context.Context, units []string) (map[string][]string, error) // nil if there is no order
}

func (s *services) OrderedAfter(ctx context.Context, units ...string) (map[string][]string, error) {
	if s.order == nil {
		return nil, nil
	}
	return s.order(ctx, units)
}

func (s *services) UnitRuns(_ context.Context, name string) (bool, error) {
	return s.runs == nil || s.runs(name), nil
}

func (s *services) StopAlone(ctx context.Context, name string) (bool, error) {
	return s.stop(ctx, name)
}

func (s *services) Adopt(ctx context.Context, listed, recorded []runtime.Pod, _ map[string]string) map[string]string {
	return s.adopt(ctx, listed, recorded)
}

// first adds a service that is stopped before any pod, by the function stop.
func (w *world) first(stop func(ctx context.Context) (bool, error)) (s *services, adopted *[]string) {
	adopted = &[]string{}
	s = &services{
		stop: func(ctx context.Context, _ string) (bool, error) { return stop(ctx) },
		adopt: func(_ context.Context, listed, recorded []runtime.Pod) map[string]string {
			signals := map[string]string{}
			for _, p := range listed {
				*adopted = append(*adopted, p.Name)
				for _, c := range p.Containers {
					signals[c.ID] = "SIGQUIT"
				}
			}
			for _, p := range recorded {
				if len(listed) == 0 {
					*adopted = append(*adopted, "recorded "+p.Name)
				}
			}
			return signals
		},
	}
	w.options.First = drain.First{Names: []string{"k3s.service"}, Services: s}
	return s, adopted
}

// endsAfter is the stop of a running service that takes d.
func endsAfter(d time.Duration) func(context.Context) (bool, error) {
	return func(ctx context.Context) (bool, error) {
		_ = bounded.Sleep(ctx, d)
		return true, context.Cause(ctx)
	}
}

func TestServicesEndBeforeTheFirstStopOfAPod(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("web", 0, runtimetest.ContainerSpec{IgnoresTERM: true})
		w.pod("dns", plan.CriticalPriority)
		_, adopted := w.first(endsAfter(3 * time.Second))
		r, _ := w.run(t.Context())
		w.expectSignals("web0", "TERM@3s KILL@23s") // it still has the whole time of its phase
		w.expectSignals("dns0", "TERM@23s")
		if got := strings.Join(*adopted, " "); got != "web dns" && got != "dns web" {
			t.Errorf("adopted %q, want both pods", got)
		}
		if f := r.StoppedFirst; len(f) != 1 || f[0].Name != "k3s.service" || f[0].Took.Duration != 3*time.Second || f[0].Error != "" || f[0].AskedAt.IsZero() {
			t.Errorf("Run() recorded %+v stopped first, want k3s.service in 3s", f)
		}
		if before := w.published[1]; len(before.StoppedFirst) != 1 {
			t.Errorf("the record was published as %+v before the service was asked, want it on it", before)
		}
	})
}

// dying is a runtime that was killed but accepts calls until its sockets are closed. After that,
// its pods are stopped without it.
type dying struct {
	*runtimetest.Fake
	from, to time.Time
}

func (r dying) Pods(ctx context.Context) ([]runtime.Pod, error) {
	if time.Now().Before(r.from) {
		return r.Fake.Pods(ctx)
	}
	time.Sleep(time.Until(r.to))
	return r.Fake.Pods(ctx)
}

func (r dying) StopContainer(ctx context.Context, c runtime.Container, grace time.Duration) error {
	if now := time.Now(); !now.Before(r.from) && now.Before(r.to) { // the call seems to succeed
		time.Sleep(time.Until(r.to) + grace)
		return r.Fake.StopContainer(ctx, c, 0)
	}
	return r.Fake.StopContainer(ctx, c, grace)
}

// Seen on Debian 12 under load: containerd was a child of the service.
func TestNoStopIsLostInARuntimeThatDiesWithItsService(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("web", 0, runtimetest.ContainerSpec{EndsAfter: time.Second})
		w.first(endsAfter(3 * time.Second))
		w.roster.Runtime = dying{w.fake, w.began.Add(3 * time.Second), w.began.Add(3100 * time.Millisecond)}
		r, _ := w.run(t.Context())
		w.expect(r, true, map[string]journal.Outcome{"web": journal.Stopped})
		w.expectSignals("web0", "TERM@3.1s")
	})
}

func TestAServiceThatDoesNotEndDelaysPodsForAWhile(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("web", 0)
		w.first(endsAfter(time.Hour))
		r, _ := w.run(t.Context())
		w.expect(r, true, map[string]journal.Outcome{"web": journal.Stopped})
		w.expectSignals("web0", "TERM@10s")
		if f := r.StoppedFirst; len(f) != 1 || f[0].Error != "still running after 10s" || f[0].AskedAt.IsZero() {
			t.Errorf("Run() recorded %+v stopped first, want that k3s.service did not end", f)
		}
	})
}

func TestPodsThatAppearWhileServicesStopAreStopped(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.first(endsAfter(3 * time.Second))
		time.AfterFunc(2*time.Second, func() { w.pod("late", 0) })
		r, _ := w.run(t.Context())
		w.expect(r, true, map[string]journal.Outcome{"late": journal.Stopped})
		w.expectSignals("late0", "TERM@3s")
	})
}

func TestServicesHaveAShareOfWhatIsGranted(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("web", 0)
		w.options.Granted = 20 * time.Second
		w.first(endsAfter(time.Hour))
		w.run(t.Context())
		w.expectSignals("web0", "TERM@5s")
	})
}

func TestAServiceThatDoesNotRunIsNotReported(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("web", 0)
		w.first(func(context.Context) (bool, error) { return false, nil })
		r, _ := w.run(t.Context())
		w.expectSignals("web0", "TERM@0s")
		if len(r.StoppedFirst) > 0 {
			t.Errorf("Run() recorded %+v stopped first, want none", r.StoppedFirst)
		}
	})
}

// If the stop was not requested, the service must not be started again.
func TestAServiceWhoseStopCouldNotBeRequestedIsReported(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("web", 0)
		w.first(func(context.Context) (bool, error) { return false, errors.New("no answer") })
		r, _ := w.run(t.Context())
		w.expectSignals("web0", "TERM@0s")
		if f := r.StoppedFirst; len(f) != 1 || f[0].Error != "no answer" || !f[0].AskedAt.IsZero() {
			t.Errorf("Run() recorded %+v stopped first, want that k3s.service was not asked", f)
		}
	})
}

func TestACancellationIsNoticedWhileAServiceEnds(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("web", 0)
		w.first(endsAfter(time.Hour))
		d := w.drain()
		time.AfterFunc(2*time.Second, d.Cancel)
		d.Run(t.Context())
		w.expectTook(time.Since(w.began), 2*time.Second)
		w.expectSignals("web0", "")
		if f := d.Record().StoppedFirst; len(f) != 1 || f[0].AskedAt.IsZero() {
			t.Errorf("Run() recorded %+v stopped first, want k3s.service, which is to be started again", f)
		}
	})
}

// The next process cannot query the runtime, so it needs the facts that the first one knew.
func TestTheNextProcessAdoptsRecordedPods(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("web", 0)
		_, adopted := w.first(func(context.Context) (bool, error) { return false, nil })
		w.options.Record.StoppedFirst = []journal.Service{{Name: "k3s.service", AskedAt: time.Now(), Took: metav1.Duration{Duration: time.Second}}}
		w.options.Record.Pods = []journal.PodRecord{{Runtime: w.fake.Name(), ID: "gone", Name: "gone", Sandbox: true}}
		r, _ := w.run(t.Context())
		if got := strings.Join(*adopted, " "); got != "recorded gone web" {
			t.Errorf("adopted %q, want what is on record, and then what is listed", got)
		}
		w.expectSignals("web0", "TERM@0s")
		if f := r.StoppedFirst; len(f) != 1 || f[0].Took.Duration != time.Second {
			t.Errorf("Run() recorded %+v stopped first, want what the process before did", f)
		}
	})
}

// The next process may find no runtime that lists the pods.
func TestPodsAreRecordedBeforeTheServiceIsStopped(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("web", 7)
		w.pod("dns", plan.CriticalPriority)
		flushed := 0 // number of published records when all was on disk
		w.options.Flush = func(context.Context) { flushed = len(w.published) }
		w.first(func(context.Context) (bool, error) {
			if flushed == 0 || flushed != len(w.published) {
				t.Fatalf("of %d records %d are on disk when the service is asked, want all", len(w.published), flushed)
			}
			got := map[string]journal.PodRecord{}
			for _, p := range w.published[flushed-1].Pods {
				got[p.Name] = p
			}
			if web, dns := got["web"], got["dns"]; web.Priority != 7 || dns.Priority != plan.CriticalPriority || web.Phase != "regular" || dns.Phase != "critical" {
				t.Errorf("on record are %+v when the service is asked, want web and dns with their phases", got)
			}
			if signal := got["web"].Signals["web0"]; signal != "SIGQUIT" {
				t.Errorf("web0 is on record with stop signal %q, want SIGQUIT", signal)
			}
			return true, nil
		})
		r, _ := w.run(t.Context())
		w.expect(r, true, map[string]journal.Outcome{"web": journal.Stopped, "dns": journal.Stopped})
	})
}

func TestAServiceThatIsNotRunningIsNotStopped(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("web", 0)
		s, _ := w.first(func(context.Context) (bool, error) { t.Error("it was asked"); return false, nil })
		s.runs = func(string) bool { return false }
		r, _ := w.run(t.Context())
		w.expectSignals("web0", "TERM@0s")
		for _, p := range append(w.published, r) {
			if len(p.StoppedFirst) > 0 {
				t.Errorf("%+v was recorded as stopped first, want none", p.StoppedFirst)
			}
		}
	})
}

func TestNoServiceIsStoppedAfterACancellation(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("web", 0)
		s, _ := w.first(func(context.Context) (bool, error) { t.Error("it was asked"); return true, nil })
		d := w.drain()
		s.adopt = func(context.Context, []runtime.Pod, []runtime.Pod) map[string]string {
			d.Cancel()
			return nil
		}
		d.Run(t.Context())
		if f := d.Record().StoppedFirst; len(f) > 0 {
			t.Errorf("Run() recorded %+v stopped first, want none", f)
		}
	})
}

// A service that was not running must not be started.
func TestACancelledStopReportsWhetherTheServiceWasRunning(t *testing.T) {
	for _, ran := range []bool{false, true} {
		inWorld(t, func(t *testing.T, w *world) {
			w.pod("web", 0)
			w.first(func(ctx context.Context) (bool, error) {
				<-ctx.Done()
				return ran, ctx.Err()
			})
			d := w.drain()
			time.AfterFunc(time.Second, d.Cancel)
			d.Run(t.Context())
			if f := d.Record().StoppedFirst; len(f) != 1 || f[0].AskedAt.IsZero() == ran || f[0].Error != "the shutdown was cancelled" {
				t.Errorf("Run() recorded %+v stopped first of a service that ran: %t, want it to be asked if so", f, ran)
			}
		})
	}
}

// It must still be started again.
func TestAStopRequestOfAnEarlierProcessStaysRecorded(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("web", 0)
		w.first(func(context.Context) (bool, error) { return false, errors.New("no answer") })
		w.options.Record.StoppedFirst = []journal.Service{{Name: "k3s.service", AskedAt: w.began}}
		r, _ := w.run(t.Context())
		if f := r.StoppedFirst; len(f) != 1 || !f[0].AskedAt.Equal(w.began) || f[0].Error != "no answer" {
			t.Errorf("Run() recorded %+v stopped first, want k3s.service as it was asked before", f)
		}
	})
}

func TestAServiceThatHasEndedIsNotReportedAsRunning(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("web", 0)
		s, _ := w.first(nil)
		s.runs = func(string) bool { return false }
		w.options.Record.StoppedFirst = []journal.Service{{Name: "k3s.service", AskedAt: w.began, Took: metav1.Duration{Duration: 10 * time.Second}, Error: "still running after 10s"}}
		r, _ := w.run(t.Context())
		if f := r.StoppedFirst; len(f) != 1 || f[0].Error != "" || !f[0].AskedAt.Equal(w.began) {
			t.Errorf("Run() recorded %+v stopped first, want k3s.service, which has ended", f)
		}
	})
}

// Seen on Debian 13: the service was still stopping when the next process checked it, and had ended
// when that requested the stop. This process must record how long it took, and not only the next
// one.
func TestTheStopTimeOfAServiceIsRecordedByTheNextProcess(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("web", 0)
		w.first(func(context.Context) (bool, error) { return false, nil })
		w.options.Record.StoppedFirst = []journal.Service{{Name: "k3s.service", AskedAt: w.began.Add(-6 * time.Second)}}
		r, _ := w.run(t.Context())
		if f := r.StoppedFirst; len(f) != 1 || f[0].Took.Duration != 6*time.Second || f[0].Error != "" {
			t.Errorf("Run() recorded %+v stopped first, want k3s.service to have taken 6s", f)
		}
	})
}

func TestAServiceThatEndedWithoutAStopRequestIsNotReported(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("web", 0)
		s, _ := w.first(nil)
		s.runs = func(string) bool { return false }
		w.options.Record.StoppedFirst = []journal.Service{{Name: "k3s.service", Error: "no answer"}}
		if r, _ := w.run(t.Context()); len(r.StoppedFirst) > 0 {
			t.Errorf("Run() recorded %+v stopped first, want none", r.StoppedFirst)
		}
	})
}

func TestEachServiceTakesItsOwnTime(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("web", 0)
		s, _ := w.first(nil)
		w.options.First.Names = []string{"slow.service", "quick.service"}
		s.stop = func(ctx context.Context, name string) (bool, error) {
			return endsAfter(map[string]time.Duration{"slow.service": 3 * time.Second, "quick.service": time.Second}[name])(ctx)
		}
		r, _ := w.run(t.Context())
		if f := r.StoppedFirst; len(f) != 2 || f[0].Took.Duration != 3*time.Second || f[1].Took.Duration != time.Second {
			t.Errorf("Run() recorded %+v stopped first, want 3s and 1s", f)
		}
	})
}

func TestAdoptIsBoundedAndDoesNotShortenTheTimeOfServices(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("web", 0)
		s, _ := w.first(endsAfter(time.Hour))
		s.adopt = func(ctx context.Context, _, _ []runtime.Pod) map[string]string {
			<-ctx.Done()
			return nil
		}
		r, _ := w.run(t.Context())
		w.expectSignals("web0", "TERM@12s")
		if f := r.StoppedFirst; len(f) != 1 || f[0].Error != "still running after 10s" {
			t.Errorf("Run() recorded %+v stopped first, want k3s.service to have had its 10s", f)
		}
	})
}

// The labels are gone with their runtime, so the phases from the earlier record are used.
func TestPodsOfAnAbsentRuntimeKeepTheirPhases(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.options.Record.StoppedFirst = []journal.Service{{Name: "k3s.service", AskedAt: time.Now(), Took: metav1.Duration{Duration: time.Second}}}
		w.options.Record.Pods = []journal.PodRecord{
			{Runtime: "k3s", Sandbox: true, ID: "1", UID: "uid", Namespace: "shop", Name: "web", Grace: metav1.Duration{Duration: 7 * time.Second}},
			{Runtime: "k3s", Sandbox: true, ID: "2", Namespace: "shop", Name: "db", Priority: plan.CriticalPriority},
			{Runtime: "docker", ID: "3", Name: "gone"},
			{Runtime: "podman", ID: "5", Name: "lone"}, // only sandboxes can be stopped without their runtime
		}
		var pods []runtime.Pod
		s, _ := w.first(func(context.Context) (bool, error) { return false, nil })
		s.adopt = func(_ context.Context, _, recorded []runtime.Pod) map[string]string {
			pods = recorded
			return nil
		}
		w.run(t.Context())
		for i := range pods { // as they are found
			pods[i].Containers = []runtime.Container{{Runtime: pods[i].Runtime, ID: "c" + pods[i].ID, Name: "main", State: runtime.Running}}
		}
		var got []string
		for _, phase := range plan.New(plan.Defaults(), pods, plan.Rules{}, 0).Phases {
			for _, p := range phase.Pods {
				got = append(got, fmt.Sprint(phase.Name, " ", p.Namespace, "/", p.Name, " ", p.Grace.Duration))
			}
		}
		if got, want := strings.Join(got, ", "), "regular shop/web 7s, critical shop/db 10s"; got != want {
			t.Errorf("planned %s, want %s", got, want)
		}
	})
}
