package shutdown_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"hostler.io/hostler/runtime/runtimetest"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/shutdown/plan"
)

func TestAManualDrainStopsNewPods(t *testing.T) {
	onHost(t, func(t *testing.T, r *rig) {
		r.pod("web", 0, runtimetest.ContainerSpec{EndsAfter: 3 * time.Second})
		r.start()
		time.AfterFunc(time.Second, func() {
			r.pod("late", 0, runtimetest.ContainerSpec{})
			r.pod("dns", plan.CriticalPriority, runtimetest.ContainerSpec{})
		})
		record, err := r.guard.Drain(t.Context(), journal.TriggerManual)
		if err != nil || !record.Graceful || outcomes(record) != "dns=skipped late=stopped web=stopped" {
			t.Errorf("Drain() = %s, %v, want the late one stopped, too", outcomes(record), err)
		}
		r.expectSignals("late", "TERM@2s")
		r.expectSignals("dns", "")
	})
}

func TestAManualDrainOfAllEndsWithTheCriticalPods(t *testing.T) {
	onHost(t, func(t *testing.T, r *rig) {
		r.usual()
		r.start()
		var steps []string
		record, err := r.guard.DrainManually(t.Context(), true, func(now *journal.Record) { steps = append(steps, outcomes(*now)) })
		if err != nil || record.Trigger != journal.TriggerManualAll || outcomes(record) != "dns=stopped web=stopped" {
			t.Errorf("DrainManually() = %s, %v, want both stopped", outcomes(record), err)
		}
		r.expectSignals("web", "TERM@0s")
		r.expectSignals("dns", "TERM@2s")
		steps = slices.Compact(steps)
		if want := []string{"", "dns= web=", "dns= web=stopped", "dns=stopped web=stopped"}; !slices.Equal(steps, want) {
			t.Errorf("progress = %q, want %q", steps, want)
		}
	})
}

func TestTheStatusHasARunningManualDrain(t *testing.T) {
	onHost(t, func(t *testing.T, r *rig) {
		r.pod("web", 0, runtimetest.ContainerSpec{EndsAfter: 3 * time.Second})
		r.start()
		done := make(chan error, 1)
		go func() {
			_, err := r.guard.Drain(t.Context(), journal.TriggerManual)
			done <- err
		}()
		time.Sleep(time.Second)
		if got := r.guard.Status().ManualDrain; got == nil || len(got.Pods) != 1 || got.Trigger != journal.TriggerManual {
			t.Errorf("ManualDrain = %+v, want the drain that runs", got)
		}
		if err := r.guard.Refusal(t.Context()); !errors.Is(err, shutdown.ErrDraining) {
			t.Errorf("Refusal() = %v, want ErrDraining", err)
		}
		if err := <-done; err != nil {
			t.Errorf("Drain() = %v, want nil", err)
		}
		synctest.Wait()
		if got := r.guard.Status().ManualDrain; got != nil {
			t.Errorf("ManualDrain = %+v after the drain, want none", got)
		}
		if err := r.guard.Refusal(t.Context()); err != nil {
			t.Errorf("Refusal() = %v, want nil", err)
		}
	})
}

func TestAManualDrainIsRefusedWhileTheHostGoesDown(t *testing.T) {
	onHost(t, func(t *testing.T, r *rig) {
		r.usual()
		r.start()
		r.logind.shutdown("reboot")
		for _, at := range []time.Duration{time.Second, time.Minute} { // Draining, Released
			time.Sleep(at)
			if _, err := r.guard.Drain(t.Context(), journal.TriggerManualAll); !errors.Is(err, shutdown.ErrShuttingDown) {
				t.Errorf("Drain() in state %v = %v, want ErrShuttingDown", r.guard.Status().State, err)
			}
		}
	})
}

func TestAManualDrainEndsWithTheAgent(t *testing.T) {
	onHost(t, func(t *testing.T, r *rig) {
		r.pod("web", 0, runtimetest.ContainerSpec{IgnoresTERM: true})
		r.start()
		done := make(chan error, 1)
		go func() {
			_, err := r.guard.Drain(t.Context(), journal.TriggerManual)
			done <- err
		}()
		time.Sleep(time.Second)
		r.stop()
		if err := <-done; !errors.Is(err, shutdown.ErrCancelled) {
			t.Errorf("Drain() = %v when the agent ends, want ErrCancelled", err)
		}
		r.expectSignals("web", "TERM@0s")
	})
}

func TestAManualDrainCanBeEnded(t *testing.T) {
	onHost(t, func(t *testing.T, r *rig) {
		r.pod("web", 0, runtimetest.ContainerSpec{IgnoresTERM: true})
		r.pod("dns", plan.CriticalPriority, runtimetest.ContainerSpec{})
		r.start()
		began := time.Now()
		r.guard.EndManualDrain(t.Context())
		if took := time.Since(began); took > 0 {
			t.Errorf("EndManualDrain() without a drain took %v", took)
		}
		done := make(chan error, 1)
		go func() {
			_, err := r.guard.Drain(t.Context(), journal.TriggerManualAll)
			done <- err
		}()
		time.Sleep(time.Second)
		began = time.Now()
		r.guard.EndManualDrain(t.Context())
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("EndManualDrain() took %v, want at most two seconds", took)
		}
		if err := <-done; !errors.Is(err, shutdown.ErrCancelled) {
			t.Errorf("Drain() = %v, want ErrCancelled", err)
		}
		time.Sleep(time.Minute)
		r.expectSignals("web", "TERM@0s")
		r.expectSignals("dns", "")
	})
}

func TestThePlanOfAManualDrainOmitsCriticalPodsUnlessRequested(t *testing.T) {
	onHost(t, func(t *testing.T, r *rig) {
		r.logind.ceiling = 8 * time.Second // logind's limit does not apply to a manual drain
		r.usual()
		r.start()
		p, exempt, err := r.guard.PlanManualDrain(t.Context(), false)
		if err != nil || len(p.Phases) != 2 || len(p.Phases[0].Pods) != 1 || len(p.Phases[1].Pods) != 0 || len(exempt) != 1 || exempt[0].Name != "dns" || p.Phases[0].Grace.Duration != 20*time.Second {
			t.Errorf("PlanManualDrain(false) = %+v, %+v, %v, want web in 20s, and dns exempt", p, exempt, err)
		}
		p, exempt, err = r.guard.PlanManualDrain(t.Context(), true)
		if err != nil || len(p.Phases[1].Pods) != 1 || len(exempt) != 0 {
			t.Errorf("PlanManualDrain(true) = %+v, %+v, %v, want dns in it", p, exempt, err)
		}
		if n := len(r.fake.Signals()); n != 0 {
			t.Errorf("%d signals were sent for a plan", n)
		}
	})
}

// outcomes returns the outcomes of a record's pods, by name.
func outcomes(r journal.Record) string {
	var list []string
	for _, p := range r.Pods {
		list = append(list, p.Name+"="+string(p.Outcome))
	}
	slices.Sort(list)
	return strings.Join(list, " ")
}
