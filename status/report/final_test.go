package report

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controlplanetest"
	"hostler.io/hostler/internal/statefile"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/status"
)

// witness records the reason of Ready in every status that the control plane receives.
type witness struct {
	*controlplanetest.Fake
	mu    sync.Mutex
	ready []string // guarded by mu
}

func (w *witness) UpdateStatus(ctx context.Context, node *corev1.Node) (*corev1.Node, error) {
	stored, err := w.Fake.UpdateStatus(ctx, node)
	if err == nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.ready = append(w.ready, ready(node).Reason)
	}
	return stored, err
}

func (w *witness) wantReady(t *testing.T, when string, want ...string) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Equal(w.ready, want) {
		t.Errorf("%s the control plane has seen Ready as %v, want %v", when, w.ready, want)
	}
}

func (d *desk) witnessed() *witness {
	w := &witness{Fake: d.client}
	d.o.Client = w
	return w
}

// goesDown reports the end of a shutdown like the guard.
func (d *desk) goesDown(t *testing.T, bound time.Duration) (took time.Duration, err error) {
	t.Helper()
	released := drainingStatus()
	released.State, released.Reason = shutdown.Released, "all pods stopped"
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	reporter := ShutdownReporter{d.Reporter, d.bootEvents(nil), statefile.NewMemory().Flush}
	began := time.Now()
	err = reporter.ReportShutdown(ctx, released)
	return time.Since(began), err
}

func TestTheFinalStatusReachesAControlPlaneThatWasUnreachableAfterTheBoot(t *testing.T) {
	for name, fault := range map[string]controlplanetest.Fault{
		"it refuses": {Err: controlplane.ErrUnavailable},
		"it hangs":   {Hang: true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, d *desk) {
				if err := d.once(t.Context(), nil); err != nil {
					t.Fatal(err)
				}
				d.client.Inject(controlplanetest.Any, fault)
				took, err := d.goesDown(t, 2*time.Second)
				if err == nil || took > 1500*time.Millisecond {
					t.Errorf("ReportShutdown() = %v after %v, want it given up in time to write to the disk", err, took)
				}
				time.Sleep(time.Hour)

				next := d.again(t, "two")
				w := next.witnessed()
				if err := next.once(t.Context(), nil); err == nil {
					t.Error("a round while it is still away = nil, want an error")
				}
				d.client.Heal()
				if err := next.once(t.Context(), nil); err != nil {
					t.Fatal(err)
				}
				w.wantReady(t, "after the boot", status.ReasonDraining, status.ReasonHostReady)

				again := next.again(t, "two")
				w = again.witnessed()
				if err := again.once(t.Context(), nil); err != nil {
					t.Fatal(err)
				}
				w.wantReady(t, "started once more,", status.ReasonHostReady)
			})
		})
	}
}

func TestAFinalStatusThatWasTakenIsNotReportedAgain(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		w := d.witnessed()
		if err := d.once(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- d.o.Recorder.Run(ctx) }()
		if _, err := d.goesDown(t, 2*time.Second); err != nil {
			t.Errorf("ReportShutdown() = %v, want it taken", err)
		}
		cancel()
		<-done
		w.wantReady(t, "at the end", status.ReasonHostReady, status.ReasonDraining)
		next := d.again(t, "two")
		w = next.witnessed()
		if err := next.once(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		w.wantReady(t, "after the boot", status.ReasonHostReady)
	})
}

func TestAFinalStatusOfAShutdownThatWasCancelledIsForgotten(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		if err := d.once(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		d.client.Inject(controlplanetest.Any, controlplanetest.Fault{Err: controlplane.ErrUnavailable})
		if _, err := d.goesDown(t, 2*time.Second); err == nil {
			t.Error("ReportShutdown() = nil without a control plane, want an error")
		}
		d.client.Heal()
		if err := d.once(t.Context(), nil); err != nil { // Armed again
			t.Fatal(err)
		}
		next := d.again(t, "two")
		w := next.witnessed()
		if err := next.once(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		w.wantReady(t, "after a boot", status.ReasonHostReady)
	})
}

func TestAFinalStatusThatIsRefusedDoesNotBlockTheRest(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		if err := d.once(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		d.controlPlaneAway()
		if _, err := d.goesDown(t, 2*time.Second); err == nil {
			t.Error("ReportShutdown() = nil without a control plane, want an error")
		}
		d.client.Heal()
		next := d.again(t, "two")
		w := next.witnessed()
		d.client.Inject(controlplanetest.UpdateStatus, controlplanetest.Fault{Err: controlplane.ErrInvalid, Times: 1})
		if err := next.once(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		w.wantReady(t, "after the boot", status.ReasonHostReady)
	})
}

func TestAShutdownsReportOvertakesARoundThatHangs(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		w := d.witnessed()
		d.start(t)
		d.client.Inject(controlplanetest.UpdateStatus, controlplanetest.Fault{Hang: true, Times: 1})
		d.set(func() { d.guard.State = shutdown.Disarmed })
		d.Changed()
		time.Sleep(time.Second) // the round hangs now
		began := time.Now()
		if err := d.ReportShutdown(t.Context(), drainingStatus()); err != nil || time.Since(began) > 0 {
			t.Errorf("ReportShutdown() = %v after %v, want an immediate report", err, time.Since(began))
		}
		w.wantReady(t, "at once", status.ReasonHostReady, status.ReasonDraining)
		if d.log.Count("cannot write node status") != 0 {
			t.Errorf("log = %s, want no failure for an interrupted round", d.log)
		}
	})
}

func TestTheFinalStatusIsKeptDespiteAHangingReportAndRound(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		d.start(t)
		d.client.Inject(controlplanetest.Any, controlplanetest.Fault{Hang: true})
		early, hush := context.WithCancel(t.Context())
		defer hush()
		started := make(chan error, 1)
		go func() { started <- d.ReportShutdown(early, drainingStatus()) }()
		synctest.Wait()
		d.set(func() { d.guard = drainingStatus() })
		d.Changed() // a round queues behind the first report
		synctest.Wait()
		hush()
		if took, err := d.goesDown(t, 2*time.Second); err == nil || took > 1500*time.Millisecond {
			t.Errorf("ReportShutdown() = %v after %v, want it given up in time", err, took)
		}
		<-started
		if values, _ := d.kept.Load(); !strings.Contains(string(values[keyFinal]), "all pods stopped") {
			t.Errorf("persisted is %s, want the final status", values[keyFinal])
		}
	})
}

func TestEventsThatWereNotPublishedOutliveTheBoot(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		d.controlPlaneAway()
		before := d.bootEvents(nil)
		for range 3 * maxKeptEvents {
			d.o.Recorder.Record(controlplane.NodeReference(nodeName), corev1.EventTypeNormal, "Tick", time.Now().String())
			time.Sleep(time.Second)
		}
		d.o.Recorder.Record(controlplane.NodeReference(nodeName), corev1.EventTypeNormal, "ShutdownReleased", "4 pods stopped")
		at := time.Now()
		before.Keep()
		time.Sleep(time.Hour)
		d.client.Heal()

		next := d.again(t, "two")
		after := next.bootEvents(nil)
		next.o.Recorder.Record(controlplane.NodeReference(nodeName), corev1.EventTypeNormal, "Later", "of this boot")
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- next.o.Recorder.Run(ctx) }()
		if err := next.o.Recorder.Flush(ctx); err != nil {
			t.Fatal(err)
		}
		after.Keep()
		cancel()
		<-done
		events, err := d.client.Events(t.Context())
		if err != nil || len(events) != maxKeptEvents+1 {
			t.Fatalf("%d Events arrived, %v, want the latest %d and that of this boot", len(events), err, maxKeptEvents)
		}
		if last := events[len(events)-2]; last.Reason != "ShutdownReleased" || !last.FirstTimestamp.Time.Equal(at.Truncate(time.Second)) && !last.FirstTimestamp.Time.Equal(at) {
			t.Errorf("the last of before = %s at %v, want ShutdownReleased at %v", last.Reason, last.FirstTimestamp, at)
		}
		if last := events[len(events)-1]; last.Reason != "Later" {
			t.Errorf("the latest = %s, want that of this boot last", last.Reason)
		}
		if values, _ := d.kept.Load(); values[keyEvents] != nil {
			t.Errorf("kept are %s, want nothing any more", values[keyEvents])
		}
	})
}

// The types that the tests' shelves replace.
var (
	_ Store = statefile.NewMemory().Values("agent")
	_ Store = statefile.NewMemory().Notes("node")
)
