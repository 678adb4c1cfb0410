package shutdown_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"hostler.io/hostler/runtime/runtimetest"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/shutdown/plan"
)

func TestAServiceStopThatIsAShutdown(t *testing.T) {
	onHost(t, func(t *testing.T, r *rig) {
		r.usual()
		r.start()
		record, err := r.guard.Drain(t.Context(), journal.TriggerServiceStop)
		if err != nil || !record.Graceful || record.Trigger != journal.TriggerServiceStop {
			t.Errorf("Drain() = %+v, %v, want it graceful", record, err)
		}
		r.expect(shutdown.Released, 0)
		r.expectSignals("dns", "TERM@2s")
	})
}

func TestAServiceStopIsNotBoundByWhatLogindGrants(t *testing.T) {
	onHost(t, func(t *testing.T, r *rig) {
		r.logind.ceiling = 8 * time.Second
		r.pod("web", 0, runtimetest.ContainerSpec{IgnoresTERM: true})
		r.start()
		if _, err := r.guard.Drain(t.Context(), journal.TriggerServiceStop); err != nil {
			t.Errorf("Drain() = %v, want nil", err)
		}
		r.expectSignals("web", "TERM@0s KILL@20s")
	})
}

func TestAServiceStopJoinsTheDrainAndCannotBeCancelled(t *testing.T) {
	onHost(t, func(t *testing.T, r *rig) {
		r.usual()
		r.start()
		r.logind.shutdown("reboot")
		time.Sleep(time.Second)
		done := make(chan error, 1)
		go func() {
			_, err := r.guard.Drain(t.Context(), journal.TriggerServiceStop)
			done <- err
		}()
		synctest.Wait()
		r.logind.cancel()
		time.Sleep(10 * time.Second)
		if err := <-done; err != nil {
			t.Errorf("Drain() = %v, want nil", err)
		}
		r.expect(shutdown.Released, 0)
		r.expectSignals("web", "TERM@0s")
		r.expectSignals("dns", "TERM@2s")

		// Repeat it after the end, for pods that appeared since.
		r.pod("late", 0, runtimetest.ContainerSpec{})
		record, err := r.guard.Drain(t.Context(), journal.TriggerServiceStop)
		if err != nil || len(record.Pods) != 3 || record.Kind != "reboot" || !record.StartedAt.Equal(r.began) {
			t.Errorf("Drain() = %+v, %v, want the shutdown's record with three pods", record, err)
		}
	})
}

func TestAServiceStopLeavesAFinishedRecordAlone(t *testing.T) {
	onHost(t, func(t *testing.T, r *rig) {
		r.usual()
		r.start()
		r.logind.shutdown("reboot")
		time.Sleep(time.Minute)
		r.expect(shutdown.Released, 0)
		want := r.guard.Status().Last
		// The last observation may be older than the end of the drain, and the power may fail at
		// any time.
		r.fake.Inject(runtimetest.Pods, runtimetest.Fault{Delay: 500 * time.Millisecond})
		r.guard.Observe(r.running())
		stopped := make(chan journal.Record, 1)
		go func() {
			record, err := r.guard.Drain(t.Context(), journal.TriggerServiceStop)
			if err != nil {
				t.Errorf("Drain() = %v, want nil", err)
			}
			stopped <- record
		}()
		for range 20 {
			synctest.Wait()
			if got := journal.Open(r.path, "two", r.options.Log).Last(); !sameRecord(got, want) {
				t.Fatalf("the next boot would know %+v, want %+v", got, want)
			}
			time.Sleep(50 * time.Millisecond)
		}
		if got := <-stopped; !sameRecord(&got, want) {
			t.Errorf("Drain() = %+v, want what was finished before, %+v", got, want)
		}
		r.expect(shutdown.Released, 0)
		if got := r.guard.Status().Last; !sameRecord(got, want) {
			t.Errorf("Last = %+v, want %+v", got, want)
		}
		if n := len(r.fake.Calls(runtimetest.StopContainer)); n != 2 {
			t.Errorf("%d containers were stopped, want the two of the shutdown", n)
		}

		// New pods are different: until they are stopped, the drain is not finished.
		r.pod("late", 0, runtimetest.ContainerSpec{EndsAfter: 2 * time.Second})
		go func() {
			record, _ := r.guard.Drain(t.Context(), journal.TriggerServiceStop)
			stopped <- record
		}()
		time.Sleep(time.Second)
		synctest.Wait()
		if got := journal.Open(r.path, "two", r.options.Log).Last(); got == nil || got.Graceful || len(got.Pods) != 3 {
			t.Errorf("with a new pod running, the next boot would know %+v, want it not graceful", got)
		}
		if got := <-stopped; !got.Graceful || len(got.Pods) != 3 || !got.FinishedAt.After(want.FinishedAt) {
			t.Errorf("Drain() = %+v, want a second run that finishes, with the third pod", got)
		}
	})
}

func TestAPodThatCameTooLateForTheDrainIsStoppedWithTheService(t *testing.T) {
	onHost(t, func(t *testing.T, r *rig) {
		r.pod("dstate", plan.CriticalPriority, runtimetest.ContainerSpec{Unkillable: true})
		r.start()
		r.logind.shutdown("reboot")
		time.AfterFunc(31500*time.Millisecond, func() {
			r.pod("late", 0, runtimetest.ContainerSpec{EndsAfter: time.Second})
		})
		time.Sleep(35 * time.Second)
		r.expect(shutdown.Released, 0)
		if last := r.guard.Status().Last; last == nil || last.Graceful || outcomes(*last) != "dstate=left late=left" {
			t.Errorf("Last = %+v, want both left", last)
		}
		record, err := r.guard.Drain(t.Context(), journal.TriggerServiceStop)
		if err != nil || outcomes(record) != "dstate=left late=stopped" {
			t.Errorf("Drain() = %s, %v, want the late one stopped", outcomes(record), err)
		}
		r.expectSignals("late", "TERM@35s")
		r.fake.Exit("dstate-c", 0)
	})
}

func TestAServiceStopWaitsForTheSandboxesOfTheDrainBefore(t *testing.T) {
	onHost(t, func(t *testing.T, r *rig) {
		r.usual()
		r.fake.Inject(runtimetest.StopPod, runtimetest.Fault{Delay: 6 * time.Second})
		r.start()
		r.logind.shutdown("reboot")
		time.Sleep(7 * time.Second)
		r.expect(shutdown.Released, 0)
		if _, err := r.guard.Drain(t.Context(), journal.TriggerServiceStop); err != nil {
			t.Errorf("Drain() = %v, want nil", err)
		}
		// The sandbox of web delays the next phase by two seconds. dns ends two seconds later.
		if at := time.Since(r.began); at != 12*time.Second {
			t.Errorf("Drain() returned at %v, want when the last sandbox is gone, at 12s", at)
		}
	})
}

func TestManualDrain(t *testing.T) {
	onHost(t, func(t *testing.T, r *rig) {
		r.usual()
		r.start()
		record, err := r.guard.Drain(t.Context(), journal.TriggerManual)
		if err != nil || !record.Graceful || len(record.Pods) != 2 {
			t.Errorf("Drain() = %+v, %v, want it graceful", record, err)
		}
		r.expect(shutdown.Armed, 1)
		r.expectSignals("web", "TERM@0s")
		r.expectSignals("dns", "")
		if got := r.guard.Status(); got.Last != nil || got.Current != nil {
			t.Errorf("Status() = %+v, want no shutdown in it", got)
		}
	})
}

func TestAManualDrainYieldsToAShutdown(t *testing.T) {
	onHost(t, func(t *testing.T, r *rig) {
		r.pod("web", 0, runtimetest.ContainerSpec{IgnoresTERM: true})
		r.start()
		done := make(chan error, 1)
		go func() {
			_, err := r.guard.Drain(t.Context(), journal.TriggerManual)
			done <- err
		}()
		synctest.Wait()
		if _, err := r.guard.Drain(t.Context(), journal.TriggerManual); err == nil {
			t.Errorf("a second Drain() = nil, want it refused")
		}
		time.Sleep(time.Second)
		r.logind.shutdown("reboot")
		synctest.Wait()
		if err := <-done; !errors.Is(err, shutdown.ErrCancelled) {
			t.Errorf("Drain() = %v, want ErrCancelled", err)
		}
		time.Sleep(20 * time.Second)
		r.expect(shutdown.Released, 0)
		r.expectReleased(21 * time.Second)

		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := r.guard.Drain(ctx, journal.TriggerManual); err == nil {
			t.Errorf("Drain() with a context that ended = nil, want an error")
		}
		if _, err := r.guard.Drain(t.Context(), "whim"); err == nil {
			t.Errorf("Drain() for a whim = nil, want an error")
		}
	})
}

func TestAManualDrainCanBeInterrupted(t *testing.T) {
	onHost(t, func(t *testing.T, r *rig) {
		r.pod("web", 0, runtimetest.ContainerSpec{IgnoresTERM: true})
		r.start()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		record, err := r.guard.Drain(ctx, journal.TriggerManual)
		if !errors.Is(err, shutdown.ErrCancelled) || len(record.Pods) != 1 || record.Pods[0].Outcome != journal.Left {
			t.Errorf("Drain() = %+v, %v, want it cancelled with the pod left", record, err)
		}
		r.expectSignals("web", "TERM@0s")
	})
}
