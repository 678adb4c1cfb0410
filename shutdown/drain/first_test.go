package drain_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/runtimetest"
	"hostler.io/hostler/shutdown/drain"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/shutdown/plan"
)

// first has a service stop before any pod, by stop.
func (w *world) first(stop func(ctx context.Context) (bool, error)) (adopted *[]string) {
	adopted = &[]string{}
	w.options.First = &drain.First{
		Names: []string{"k3s.service"},
		Stop:  func(ctx context.Context, _ string) (bool, error) { return stop(ctx) },
		Adopt: func(_ context.Context, pods []runtime.Pod, before []journal.PodRecord) {
			for _, p := range pods {
				*adopted = append(*adopted, p.Name)
			}
			for _, p := range before {
				*adopted = append(*adopted, "recorded "+p.Name)
			}
		},
	}
	return adopted
}

// endsAfter is a service that runs and takes its time to end.
func endsAfter(d time.Duration) func(context.Context) (bool, error) {
	return func(ctx context.Context) (bool, error) {
		drain.Sleep(ctx, d)
		return true, context.Cause(ctx)
	}
}

func TestServicesEndBeforeAnyPodIsAsked(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("web", 0, runtimetest.ContainerSpec{IgnoresTERM: true})
		w.pod("dns", plan.CriticalPriority)
		adopted := w.first(endsAfter(3 * time.Second))
		r, _ := w.run(t.Context())
		w.expectSignals("web0", "TERM@3s KILL@23s") // the whole of its phase all the same
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

func TestAServiceThatDoesNotEndHoldsPodsUpForAWhile(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("web", 0)
		w.first(endsAfter(time.Hour))
		r, _ := w.run(t.Context())
		w.expect(r, true, map[string]journal.Outcome{"web": journal.Stopped})
		w.expectSignals("web0", "TERM@10s")
		if f := r.StoppedFirst; len(f) != 1 || f[0].Error != "it had not ended after 10s" || f[0].AskedAt.IsZero() {
			t.Errorf("Run() recorded %+v stopped first, want that k3s.service did not end", f)
		}
	})
}

func TestWhatComesWhileServicesEndIsStopped(t *testing.T) {
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

func TestOfAServiceThatDoesNotRunNobodyHears(t *testing.T) {
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

// Who was not asked is not to be started again either.
func TestAServiceThatNobodyCouldAskIsTold(t *testing.T) {
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

func TestACancellationIsHeardWhileAServiceEnds(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("web", 0)
		w.first(endsAfter(time.Hour))
		d := drain.New(w.options)
		time.AfterFunc(2*time.Second, d.Cancel)
		d.Run(t.Context())
		w.expectTook(time.Since(w.began), 2*time.Second)
		w.expectSignals("web0", "")
		if f := d.Record().StoppedFirst; len(f) != 1 || f[0].AskedAt.IsZero() {
			t.Errorf("Run() recorded %+v stopped first, want k3s.service, which is to be started again", f)
		}
	})
}

// The next process finds nobody to ask, and has to know what the one before knew.
func TestTheNextProcessAdoptsWhatIsOnRecord(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.pod("web", 0)
		adopted := w.first(func(context.Context) (bool, error) { return false, nil })
		w.options.Record.StoppedFirst = []journal.Service{{Name: "k3s.service", AskedAt: time.Now(), Took: metav1.Duration{Duration: time.Second}}}
		w.options.Record.Pods = []journal.PodRecord{{Runtime: w.fake.Name(), ID: "gone", Name: "gone"}}
		r, _ := w.run(t.Context())
		if got := strings.Join(*adopted, " "); got != "recorded gone" {
			t.Errorf("adopted %q, want what is on record", got)
		}
		w.expectSignals("web0", "TERM@0s")
		if f := r.StoppedFirst; len(f) != 1 || f[0].Took.Duration != time.Second {
			t.Errorf("Run() recorded %+v stopped first, want what the process before did", f)
		}
	})
}
