package systemd_test

import (
	"context"
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"testing"

	"github.com/godbus/dbus/v5"

	"hostler.io/hostler/systemd"
	"hostler.io/hostler/systemd/systemdtest"
)

func TestAUnitIsStoppedForItsOwnProcesses(t *testing.T) {
	web := systemdtest.ServiceState{Name: "web.service", ActiveState: "active", MainPID: 10, Members: []uint32{11}}
	state := func(active string) systemdtest.ServiceState { s := web; s.ActiveState = active; return s }
	cases := []struct {
		name    string
		service systemdtest.ServiceState
		pid     int
		want    bool
	}{
		{"a process in its cgroup", web, 11, true},
		{"its main process, which is elsewhere", web, 10, true},
		{"nobody asks whose it is", web, 0, true},
		{"a process of somebody else", web, 12, false},
		{"it stops already", state("deactivating"), 11, true},
		{"it waits to be started again", state("activating"), 0, true},
		{"it does not run", state("inactive"), 0, false},
		{"it has failed", state("failed"), 0, false},
		{"there is no such unit", systemdtest.ServiceState{}, 0, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			fake := systemdtest.NewFake(t, systemdtest.FakeOptions{})
			fake.SetManager(systemdtest.ManagerState{SystemState: "running", Service: c.service})
			reported := 0
			got, err := systemd.NewManager(fake.ManagerSocket()).StopUnit(t.Context(), "web.service", c.pid, func(_ context.Context, names []string) error {
				if reported++; names[0] != "web.service" || len(fake.StoppedUnits()) > 0 {
					t.Errorf("StopUnit() reported %v with %v stopped, want web.service before that", names, fake.StoppedUnits())
				}
				return nil
			})
			if got != c.want || err != nil || reported > 0 != c.want {
				t.Errorf("StopUnit() = %t, %v, and reported %d, want %t", got, err, reported, c.want)
			}
			var want []string
			if c.want {
				want = []string{"web.service replace"}
			}
			if stopped := fake.StoppedUnits(); !slices.Equal(stopped, want) {
				t.Errorf("stopped %v, want %v", stopped, want)
			}
		})
	}
	if got, err := systemd.NewManager(filepath.Join(t.TempDir(), "none")).StopUnit(t.Context(), "web.service", 0, unreported); got || err != nil {
		t.Errorf("StopUnit() without systemd = %t, %v, want false", got, err)
	}
}

// TestAUnitThatCannotBeReportedIsNotStopped has a disk that fails.
func TestAUnitThatCannotBeReportedIsNotStopped(t *testing.T) {
	fake := systemdtest.NewFake(t, systemdtest.FakeOptions{})
	fake.SetManager(systemdtest.ManagerState{SystemState: "running", Service: systemdtest.ServiceState{Name: "web.service", ActiveState: "active", MainPID: 10}})
	full := errors.New("disk full")
	got, err := systemd.NewManager(fake.ManagerSocket()).StopUnit(t.Context(), "web.service", 10, func(context.Context, []string) error { return full })
	if stopped := fake.StoppedUnits(); got || !errors.Is(err, full) || len(stopped) > 0 {
		t.Errorf("StopUnit() = %t, %v with %v stopped, want no stop, and why", got, err, stopped)
	}
}

// unreported is for stops that need not be reported.
func unreported(context.Context, []string) error { return nil }

// queuedJob returns a unit's property Job with a job.
func queuedJob() any {
	return struct {
		ID   uint32
		Path dbus.ObjectPath
	}{7, "/org/freedesktop/systemd1/job/7"}
}

// systemd also stops units that require a unit, or are part of it.
func TestUnitsStoppedTogether(t *testing.T) {
	unit := func(active string, more systemdtest.UnitState) systemdtest.UnitState {
		state := systemdtest.UnitState{"ActiveState": active}
		maps.Copy(state, more)
		return state
	}
	fake := systemdtest.NewFake(t, systemdtest.FakeOptions{})
	fake.SetManager(systemdtest.ManagerState{
		Service: systemdtest.ServiceState{Name: "web.service", ActiveState: "active"},
		Units: map[string]systemdtest.UnitState{
			"web.service": unit("active", systemdtest.UnitState{
				"RequiredBy": []string{"needs.service", "down.service", "all.target"}, "BoundBy": []string{"bound.service"}, "RequisiteOf": []string{"queued.service", "refuses.service"}, "WantedBy": []string{"wants.service"},
			}),
			"needs.service":   unit("active", systemdtest.UnitState{"BoundBy": []string{"bound.service"}}),
			"bound.service":   unit("activating", systemdtest.UnitState{"ConsistsOf": []string{"web.service", "ends.service"}}),
			"down.service":    unit("failed", systemdtest.UnitState{"PropagatesStopTo": []string{"through.service"}}),
			"all.target":      unit("active", systemdtest.UnitState{"ConsistsOf": []string{"part.service"}}),
			"ends.service":    unit("deactivating", nil),
			"queued.service":  unit("active", systemdtest.UnitState{"Job": queuedJob()}),
			"refuses.service": unit("active", systemdtest.UnitState{"CanStart": false}),
			"through.service": unit("reloading", nil),
			"part.service":    unit("active", nil),
			"wants.service":   unit("active", nil),
		},
	})
	var reported []string
	stopping, err := systemd.NewManager(fake.ManagerSocket()).StopUnit(t.Context(), "web.service", 0, func(_ context.Context, names []string) error { reported = names; return nil })
	if want := []string{"web.service", "needs.service", "bound.service", "through.service", "part.service"}; !stopping || err != nil || len(reported) == 0 || reported[0] != want[0] || !slices.Equal(slices.Sorted(slices.Values(reported)), slices.Sorted(slices.Values(want))) {
		t.Errorf("StopUnit() = %t, %v, and reported %v, want %v", stopping, err, reported, want)
	}
}

func TestTheServiceOfAMainProcess(t *testing.T) {
	fake := systemdtest.NewFake(t, systemdtest.FakeOptions{})
	fake.SetManager(systemdtest.ManagerState{SystemState: "running", Service: systemdtest.ServiceState{Name: "web.service", ActiveState: "active", MainPID: 10, Members: []uint32{10, 11}}})
	m := systemd.NewManager(fake.ManagerSocket())
	for pid, want := range map[int]string{10: "web.service", 11: "", 12: ""} { // the process, another one of the unit, and one of another unit
		if got, err := m.MainOf(t.Context(), pid); got != want || err != nil {
			t.Errorf("MainOf(%d) = %q, %v, want %q", pid, got, err, want)
		}
	}
	if got, err := systemd.NewManager(filepath.Join(t.TempDir(), "none")).MainOf(t.Context(), 10); got != "" || err != nil {
		t.Errorf("MainOf() without systemd = %q, %v, want none", got, err)
	}
}

func TestUnitStopsWhenOthersHaveStopped(t *testing.T) {
	for active, want := range map[string]bool{"active": false, "activating": false, "reloading": false, "deactivating": true, "inactive": true, "failed": true} {
		fake := systemdtest.NewFake(t, systemdtest.FakeOptions{})
		fake.SetManager(systemdtest.ManagerState{SystemState: "running", Service: systemdtest.ServiceState{Name: "web.service", ActiveState: active}})
		m := systemd.NewManager(fake.ManagerSocket())
		if got, err := m.UnitStops(t.Context(), "web.service"); got != want || err != nil {
			t.Errorf("UnitStops() of one that is %s = %t, %v, want %t", active, got, err, want)
		}
		if got, err := m.UnitStops(t.Context(), "other.service"); !got || err != nil {
			t.Errorf("UnitStops() of one that is not loaded = %t, %v, want true", got, err)
		}
	}
	if got, err := systemd.NewManager(filepath.Join(t.TempDir(), "none")).UnitStops(t.Context(), "web.service"); !got || err != nil {
		t.Errorf("UnitStops() without systemd = %t, %v, want true", got, err)
	}
}
