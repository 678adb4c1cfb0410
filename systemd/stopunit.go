package systemd

import (
	"context"

	"github.com/godbus/dbus/v5"

	"hostler.io/hostler/systemd/bus"
)

// StopUnit begins to stop the unit of that name that a process is of, as `systemctl stop
// --no-block`, and tells whether there was anything to stop: false where no such unit
// runs, where the process is none of it, and where there is no systemd. Process 0 is of
// any. Doing so while it stops changes nothing.
func (m *Manager) StopUnit(ctx context.Context, name string, pid int) (stopping bool, err error) {
	return orAbsent(false)(ask(ctx, m, "have systemd stop "+name, func(ctx context.Context, conn *dbus.Conn) (bool, error) {
		return stopUnit(ctx, conn, name, pid)
	}))
}

func stopUnit(ctx context.Context, conn *dbus.Conn, name string, pid int) (bool, error) {
	unit, active, err := unitState(ctx, conn, name)
	if err != nil || over(active) {
		return false, err
	}
	if pid != 0 {
		if of, err := isOf(ctx, conn, unit, pid); err != nil || !of {
			return false, err
		}
	}
	var job dbus.ObjectPath
	return true, bus.Call(ctx, conn, bus.Systemd, bus.SystemdPath, systemdManager+".StopUnit", &job, name, "replace")
}

// UnitStops tells whether the stop of a unit has begun or is over, and not while it waits
// for others to stop first. A unit that is not loaded, and any where there is no systemd,
// has stopped.
func (m *Manager) UnitStops(ctx context.Context, name string) (bool, error) {
	return orAbsent(true)(ask(ctx, m, "ask systemd whether "+name+" stops", func(ctx context.Context, conn *dbus.Conn) (bool, error) {
		_, active, err := unitState(ctx, conn, name)
		return active == "deactivating" || over(active), err
	}))
}

// unitState returns a unit's object and its ActiveState; none if it is not loaded.
func unitState(ctx context.Context, conn *dbus.Conn, name string) (unit dbus.ObjectPath, active string, err error) {
	err = bus.Call(ctx, conn, bus.Systemd, bus.SystemdPath, systemdManager+".GetUnit", &unit, name)
	if bus.ErrorName(err) == "org.freedesktop.systemd1.NoSuchUnit" {
		return "", "", nil // not loaded, or no name of a unit
	}
	if err != nil {
		return "", "", err
	}
	err = bus.Property(ctx, conn, bus.Systemd, unit, systemdUnit, "ActiveState", &active)
	return unit, active, err
}

// over tells whether a unit of an ActiveState has nothing to stop.
func over(active string) bool { return active == "" || active == "inactive" || active == "failed" }

// isOf tells whether a process is in a unit's cgroup, or its main process elsewhere.
func isOf(ctx context.Context, conn *dbus.Conn, unit dbus.ObjectPath, pid int) (bool, error) {
	var owner dbus.ObjectPath
	err := bus.Call(ctx, conn, bus.Systemd, bus.SystemdPath, systemdManager+".GetUnitByPID", &owner, uint32(pid))
	if err != nil && bus.ErrorName(err) != "org.freedesktop.systemd1.NoUnitForPID" {
		return false, err
	}
	if err == nil && owner == unit {
		return true, nil
	}
	var main uint32
	err = bus.Property(ctx, conn, bus.Systemd, unit, systemdService, "MainPID", &main)
	if bus.ErrorName(err) != "" { // it is no service
		return false, nil
	}
	return main == uint32(pid), err
}
