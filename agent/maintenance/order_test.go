package maintenance_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"hostler.io/hostler/agent/maintenance"
	"hostler.io/hostler/agent/owner"
	"hostler.io/hostler/internal/hint"
	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/runtimetest"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/shutdown/journal"
)

func order() maintenance.Order {
	return maintenance.Order{Trigger: journal.TriggerTaint, Cause: "taint a:NoExecute"}
}

func TestAHostDrainsItself(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		d.register(t)
		d.publishing(t)
		drainer, fake := d.guarded(t, runtimetest.ContainerSpec{Name: "web"}, runtimetest.ContainerSpec{Name: "db", Labels: map[string]string{"hostler.io/critical": "true"}})
		var began time.Time
		record, err := drainer.DrainForCause(t.Context(), order(), func(at time.Time) error {
			if began = at; len(fake.Signals()) > 0 {
				t.Error("a pod was stopped before the drain is known")
			}
			return nil
		})
		if err != nil || !record.Graceful || record.Trigger != journal.TriggerTaint || record.Cause != "taint a:NoExecute" || !began.Equal(record.StartedAt) {
			t.Errorf("DrainForCause() = %+v, %v, want it done, and begun at %v", record, err, began)
		}
		if n := maintenance.PodsToStop(record); n != 1 || len(fake.Signals()) != 1 {
			t.Errorf("%d pods are not exempt and %d signals were sent, want the one that is not critical", n, len(fake.Signals()))
		}
		d.wantCordoned(t, "after the drain", false)
		time.Sleep(time.Minute)
		synctest.Wait()
		want := []string{"Normal DrainStarted: stops all pods but critical ones: taint a:NoExecute", "Normal DrainFinished: "}
		got := d.reasons(t, "Drain")
		if len(got) != 2 || got[0] != want[0] || !strings.HasPrefix(got[1], want[1]) {
			t.Errorf("Events = %q, want %q", got, want)
		}
		if drained := d.Guard.Status().Drained; drained == nil || !drained.StartedAt.Equal(began) || len(d.Drained.Kept(time.Now())) != 1 {
			t.Errorf("Drained = %+v, %+v, want the drain on record and its pod kept", drained, d.Drained.Kept(time.Now()))
		}
	})
}

func TestADrainOfTheHostIsContinuedAndUndone(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		drainer, _ := d.guarded(t,
			runtimetest.ContainerSpec{Name: "web", Restart: runtime.RestartUnlessStopped},
			runtimetest.ContainerSpec{Name: "slow", EndsAfter: 10 * time.Second, Restart: runtime.RestartUnlessStopped})
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		first, err := drainer.DrainForCause(ctx, order(), func(time.Time) error { return nil })
		if !errors.Is(err, shutdown.ErrCancelled) {
			t.Errorf("DrainForCause() = %v, want that it was cancelled", err)
		}
		o := order()
		o.Began = first.StartedAt
		second, err := drainer.DrainForCause(t.Context(), o, func(time.Time) error { return nil })
		if err != nil || !second.StartedAt.Equal(first.StartedAt) || len(second.Pods) != 2 || !second.Graceful {
			t.Errorf("DrainForCause() = %+v, %v, want the first one continued", second, err)
		}
		if undone, err := drainer.Undo(t.Context(), o); err != nil || !undone {
			t.Errorf("Undo() = %t, %v, want both started again", undone, err)
		}
		waits := slices.DeleteFunc(slices.Clone(d.Journal.Restarts()), func(r journal.Restart) bool { return r.Outcome != "" || !r.Drained || !r.HostLived })
		if len(waits) != 2 {
			t.Errorf("Restarts() = %+v, want both pending", d.Journal.Restarts())
		}
		o.Began = o.Began.Add(time.Hour) // an unknown drain
		if third, err := drainer.DrainForCause(t.Context(), o, func(time.Time) error { return nil }); err != nil || third.StartedAt.Equal(first.StartedAt) {
			t.Errorf("DrainForCause() = %+v, %v, want a new one", third, err)
		}
	})
}

func TestAHostDoesNotDrainItselfBesideAKubelet(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		d.Owners = ownedBy(owner.Auto, &owner.Owner{Name: owner.Kubelet, Evidence: "process kubelet, pid 7"})
		drainer, fake := d.guarded(t, runtimetest.ContainerSpec{Name: "web"})
		_, err := drainer.DrainForCause(t.Context(), order(), func(time.Time) error { t.Error("it begins"); return nil })
		if _, refused := errors.AsType[*hint.Error](err); !refused || len(fake.Signals()) > 0 {
			t.Errorf("DrainForCause() = %v, want it refused", err)
		}
	})
}

// TestADrainOfTheHostThatCannotBeStored has a caller that cannot store the start, and a journal that cannot be written
// when the drain has ended, or when it is undone.
func TestADrainOfTheHostThatCannotBeStored(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		drainer, fake := d.guarded(t, runtimetest.ContainerSpec{Name: "web", EndsAfter: 10 * time.Second, Restart: runtime.RestartUnlessStopped})
		full := errors.New("no space left on device")
		if _, err := drainer.DrainForCause(t.Context(), order(), func(time.Time) error { return full }); !errors.Is(err, full) || len(fake.Signals()) > 0 {
			t.Errorf("DrainForCause() = %v after %d signals, want that no pod is stopped", err, len(fake.Signals()))
		}
		fails := time.AfterFunc(5*time.Second, func() {
			if err := errors.Join(os.RemoveAll(d.folder), os.WriteFile(d.folder, nil, 0o600)); err != nil {
				t.Error(err)
			}
		})
		defer fails.Stop()
		record, err := drainer.DrainForCause(t.Context(), order(), func(time.Time) error { return nil })
		if err == nil || !strings.Contains(err.Error(), "cannot store which pods a drain has stopped") || !record.Graceful {
			t.Errorf("DrainForCause() = %+v, %v, want that the record is not on the disk", record, err)
		}
		o := order()
		o.Began = record.StartedAt
		if undone, err := drainer.Undo(t.Context(), o); err == nil || !undone {
			t.Errorf("Undo() = %t, %v, want that it is undone, and not on the disk", undone, err)
		}
		if err := os.Remove(d.folder); err != nil {
			t.Fatal(err)
		}
		if undone, err := drainer.Undo(t.Context(), o); err != nil || !undone {
			t.Errorf("Undo() = %t, %v, want it on the disk", undone, err)
		}
	})
}
