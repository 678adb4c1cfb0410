package systemd_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"hostler.io/hostler/systemd"
	"hostler.io/hostler/systemd/systemdtest"
)

func TestAUnitIsStoppedAloneAndWaitedFor(t *testing.T) {
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
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
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
	// In this mode the job waits for nobody, and least of all for hostler.
	if stopped := fake.StoppedUnits(); !slices.Equal(stopped, []string{"k3s.service ignore-dependencies"}) {
		t.Errorf("stopped %v, want k3s.service alone", stopped)
	}
}

func TestAUnitThatDoesNotEndIsNotWaitedForForEver(t *testing.T) {
	fake := systemdtest.NewFake(t, systemdtest.FakeOptions{})
	fake.SetManager(systemdtest.ManagerState{Service: systemdtest.ServiceState{Name: "k3s.service", ActiveState: "active"}})
	late := errors.New("it had not ended")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 100*time.Millisecond, late)
	defer cancel()
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
	if err := m.StartUnit(t.Context(), "other.service"); err == nil {
		t.Error("StartUnit() of one that is not there = nil, want an error")
	}
	if err := systemd.NewManager(filepath.Join(t.TempDir(), "none")).StartUnit(t.Context(), "k3s.service"); !errors.Is(err, systemd.ErrNotSystemd) {
		t.Errorf("StartUnit() without systemd = %v, want %v", err, systemd.ErrNotSystemd)
	}
}
