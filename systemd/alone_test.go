package systemd_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/systemd"
	"hostler.io/hostler/systemd/systemdtest"
)

func TestStopAlone(t *testing.T) {
	fake := systemdtest.NewFake(t, systemdtest.FakeOptions{})
	state := func(active string) {
		fake.SetManager(systemdtest.ManagerState{SystemState: "stopping", Service: systemdtest.ServiceState{Name: "k3s.service", ActiveState: active}})
	}
	m := systemd.NewManager(fake.ManagerSocket())
	for _, active := range []string{"inactive", "failed"} {
		state(active)
		if ran, err := m.StopAlone(t.Context(), "k3s.service"); ran || err != nil {
			t.Errorf("StopAlone() of one that is %s = %t, %v, want that it did not run", active, ran, err)
		}
	}
	if ran, err := m.StopAlone(t.Context(), "other.service"); ran || err != nil {
		t.Errorf("StopAlone() of one that is not loaded = %t, %v, want that it did not run", ran, err)
	}
	if stopped := fake.StoppedUnits(); len(stopped) > 0 {
		t.Errorf("stopped %v, want none so far", stopped)
	}

	state("active")
	type end struct {
		ran bool
		err error
	}
	ended := make(chan end, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	go func() {
		ran, err := m.StopAlone(ctx, "k3s.service")
		ended <- end{ran, err}
	}()
	for len(fake.StoppedUnits()) == 0 && ctx.Err() == nil {
		select {
		case e := <-ended:
			t.Fatalf("StopAlone() = %+v, want it to wait for the end", e)
		case <-time.After(time.Millisecond):
		}
	}
	state("deactivating")
	state("inactive")
	if e := <-ended; !e.ran || e.err != nil {
		t.Errorf("StopAlone() = %+v, want that it ran and has ended", e)
	}
	// In this mode the job waits for no other unit, and not for hostler.
	if stopped := fake.StoppedUnits(); !slices.Equal(stopped, []string{"k3s.service ignore-dependencies"}) {
		t.Errorf("stopped %v, want k3s.service alone", stopped)
	}
}

// A queued start would otherwise run in the middle of the drain.
func TestAUnitThatIsAboutToStartIsStopped(t *testing.T) {
	fake := systemdtest.NewFake(t, systemdtest.FakeOptions{})
	m := systemd.NewManager(fake.ManagerSocket())
	for job, want := range map[string]bool{"": false, "stop": false, "start": true, "restart": true} {
		fake.SetManager(systemdtest.ManagerState{Service: systemdtest.ServiceState{Name: "k3s.service", ActiveState: "inactive", Job: job}})
		if runs, err := m.UnitRuns(t.Context(), "k3s.service"); runs != want || err != nil {
			t.Errorf("UnitRuns() of one with job %q = %t, %v, want %t", job, runs, err, want)
		}
	}
	fake.SetManager(systemdtest.ManagerState{Service: systemdtest.ServiceState{Name: "k3s.service", ActiveState: "inactive", Job: "start"}})
	ended := make(chan bool)
	go func() {
		ran, err := m.StopAlone(t.Context(), "k3s.service")
		ended <- ran && err == nil
	}()
	for len(fake.StoppedUnits()) == 0 {
		select {
		case <-ended:
			t.Fatal("StopAlone() has ended and asked nobody")
		case <-time.After(time.Millisecond):
		}
	}
	fake.SetManager(systemdtest.ManagerState{Service: systemdtest.ServiceState{Name: "k3s.service", ActiveState: "inactive"}})
	if !<-ended {
		t.Error("StopAlone() = false or an error, want that there was something to stop")
	}
}

func TestAStopIsAwaitedWhileSystemdReexecutes(t *testing.T) {
	fake := systemdtest.NewFake(t, systemdtest.FakeOptions{})
	state := func(active string) {
		fake.SetManager(systemdtest.ManagerState{Service: systemdtest.ServiceState{Name: "k3s.service", ActiveState: active}})
	}
	state("active")
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		ran, err := systemd.NewManager(fake.ManagerSocket()).StopAlone(ctx, "k3s.service")
		if !ran && err == nil {
			err = errors.New("it did not run")
		}
		ended <- err
	}()
	for len(fake.StoppedUnits()) == 0 && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	fake.RestartManager(t)
	for len(fake.StoppedUnits()) < 2 && ctx.Err() == nil { // a manager that re-executed itself may have lost the first job
		select {
		case err := <-ended:
			t.Fatalf("StopAlone() has ended with %v before the unit", err)
		case <-time.After(time.Millisecond):
		}
	}
	state("inactive")
	if err := <-ended; err != nil {
		t.Errorf("StopAlone() = %v, want that it ran and has ended", err)
	}
}

func TestAUnitThatDoesNotEndIsAwaitedUntilTheDeadline(t *testing.T) {
	fake := systemdtest.NewFake(t, systemdtest.FakeOptions{})
	fake.SetManager(systemdtest.ManagerState{Service: systemdtest.ServiceState{Name: "k3s.service", ActiveState: "active"}})
	late := errors.New("it had not ended")
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		for len(fake.StoppedUnits()) == 0 && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(100 * time.Millisecond) // it checks the unit meanwhile
		cancel(late)
	}()
	defer cancel(nil)
	if ran, err := systemd.NewManager(fake.ManagerSocket()).StopAlone(ctx, "k3s.service"); !ran || err == nil {
		t.Errorf("StopAlone() = %t, %v, want that it ran and has not ended", ran, err)
	}
}

func TestAUnitIsStarted(t *testing.T) {
	fake := systemdtest.NewFake(t, systemdtest.FakeOptions{})
	fake.SetManager(systemdtest.ManagerState{Service: systemdtest.ServiceState{Name: "k3s.service", ActiveState: "inactive"}})
	m := systemd.NewManager(fake.ManagerSocket())
	if err := m.StartUnit(t.Context(), "k3s.service"); err != nil || !slices.Equal(fake.StartedUnits(), []string{"k3s.service"}) {
		t.Errorf("StartUnit() = %v, and started %v, want k3s.service", err, fake.StartedUnits())
	}
	if err := m.StartUnit(t.Context(), "other.service"); !errors.Is(err, shutdown.ErrNoService) {
		t.Errorf("StartUnit() of one that is not there = %v, want %v", err, shutdown.ErrNoService)
	}
	fake.SetManager(systemdtest.ManagerState{Service: systemdtest.ServiceState{Name: "k3s.service", ActiveState: "deactivating", Job: "stop"}})
	if err := m.StartUnit(t.Context(), "k3s.service"); !errors.Is(err, shutdown.ErrStillStops) {
		t.Errorf("StartUnit() of one that stops = %v, want %v", err, shutdown.ErrStillStops)
	}
	if err := systemd.NewManager(filepath.Join(t.TempDir(), "none")).StartUnit(t.Context(), "k3s.service"); !errors.Is(err, systemd.ErrNotSystemd) {
		t.Errorf("StartUnit() without systemd = %v, want %v", err, systemd.ErrNotSystemd)
	}
}

func TestUnitStart(t *testing.T) {
	fake := systemdtest.NewFake(t, systemdtest.FakeOptions{})
	m := systemd.NewManager(fake.ManagerSocket())
	since := time.UnixMicro(2_000_000)
	for _, tt := range []struct {
		is       systemdtest.UnitState
		starting bool
		failed   string
	}{
		{systemdtest.UnitState{"ActiveState": "active", "Result": "success"}, false, ""},
		{systemdtest.UnitState{"ActiveState": "inactive", "Result": "success", "InactiveExitTimestamp": uint64(2_000_001)}, false, ""},
		{systemdtest.UnitState{"ActiveState": "inactive", "Result": "success", "InactiveExitTimestamp": uint64(1_999_999)}, false, "a dependency did not start, or a condition of the unit is not met"},
		{systemdtest.UnitState{"ActiveState": "activating", "Result": "exit-code"}, true, ""}, // waiting for RestartSec=
		{systemdtest.UnitState{"ActiveState": "failed", "Result": "exit-code", "Job": queuedJob()}, true, ""},
		{systemdtest.UnitState{"ActiveState": "failed", "Result": "exit-code"}, false, "exit-code"},
	} {
		fake.SetManager(systemdtest.ManagerState{Units: map[string]systemdtest.UnitState{"web.service": tt.is}})
		if starting, failed, err := m.UnitStart(t.Context(), "web.service", since); starting != tt.starting || failed != tt.failed || err != nil {
			t.Errorf("UnitStart() of %+v = %t, %q, %v, want %t, %q", tt.is, starting, failed, err, tt.starting, tt.failed)
		}
	}
}
