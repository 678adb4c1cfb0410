package systemd

import (
	"context"
	"path"
	"slices"
	"time"

	"github.com/godbus/dbus/v5"

	"hostler.io/hostler/systemd/bus"
)

// stoppedWithBound bounds the search for units that stop together with a unit, because the stop
// itself is more important.
const stoppedWithBound = 500 * time.Millisecond

// StopUnit begins to stop a unit, like `systemctl stop --no-block`. It does so only if the process
// pid belongs to the unit; pid 0 skips this check. stopping is false if the unit does not run, if
// the check fails, or if there is no systemd. If the unit is stopping already, another call has no
// effect. Just before the request to systemd, it calls before with the names of that unit and of
// those that systemd stops with it.
func (m *Manager) StopUnit(ctx context.Context, name string, pid int, before func(ctx context.Context, names []string) error) (stopping bool, err error) {
	return orAbsent(false)(ask(ctx, m, "stop "+name, func(ctx context.Context, conn *dbus.Conn) (bool, error) {
		return stopUnit(ctx, conn, name, pid, before)
	}))
}

func stopUnit(ctx context.Context, conn *dbus.Conn, name string, pid int, before func(context.Context, []string) error) (bool, error) {
	unit, active, err := unitState(ctx, conn, name)
	if err != nil || over(active) {
		return false, err
	}
	if pid != 0 {
		if of, err := isOf(ctx, conn, unit, pid); err != nil || !of {
			return false, err
		}
	}
	if err := before(ctx, append([]string{name}, stoppedWith(ctx, conn, name)...)); err != nil {
		return false, err
	}
	var job dbus.ObjectPath
	return true, bus.Call(ctx, conn, bus.Systemd, bus.SystemdPath, systemdManager+".StopUnit", &job, name, "replace")
}

// stoppedWith returns the running units that systemd stops together with a unit, those that it
// stops with these, and so on, as far as systemd answers soon. It omits units that are stopping
// already, and targets: they have no processes, and starting one again would start everything that
// it wants.
func stoppedWith(ctx context.Context, conn *dbus.Conn, name string) (names []string) {
	ctx, cancel := context.WithTimeout(ctx, stoppedWithBound)
	defer cancel()
	concerned := []string{name}
	for i := 0; i < len(concerned) && ctx.Err() == nil; i++ {
		unit, err := readUnit(ctx, conn, concerned[i])
		if err != nil {
			continue
		}
		runs := unit.Starts() || unit.Runs() && unit.ActiveState != "deactivating" && !unit.Job
		if i > 0 && runs && unit.CanStart && path.Ext(unit.Name) != ".target" {
			names = append(names, unit.Name)
		}
		for _, other := range unit.StoppedWithIt {
			if !slices.Contains(concerned, other) {
				concerned = append(concerned, other)
			}
		}
	}
	return names
}

// UnitStops reports whether the stop of a unit has begun or is over. It is false while the unit
// waits for others to stop first. It is true if the unit is not loaded, or if there is no systemd.
func (m *Manager) UnitStops(ctx context.Context, name string) (bool, error) {
	return orAbsent(true)(ask(ctx, m, "get state of "+name+" from systemd", func(ctx context.Context, conn *dbus.Conn) (bool, error) {
		_, active, err := unitState(ctx, conn, name)
		return active == "deactivating" || over(active), err
	}))
}

// unitState returns a unit's object and its ActiveState, or "" if the unit is not loaded.
func unitState(ctx context.Context, conn *dbus.Conn, name string) (unit dbus.ObjectPath, active string, err error) {
	err = bus.Call(ctx, conn, bus.Systemd, bus.SystemdPath, systemdManager+".GetUnit", &unit, name)
	if bus.ErrorName(err) == "org.freedesktop.systemd1.NoSuchUnit" {
		return "", "", nil // not loaded, or not a valid unit name
	}
	if err != nil {
		return "", "", err
	}
	err = bus.Property(ctx, conn, bus.Systemd, unit, systemdUnit, "ActiveState", &active)
	return unit, active, err
}

// over reports whether a unit with that ActiveState has nothing to stop.
func over(active string) bool { return active == "" || active == "inactive" || active == "failed" }

// MainOf returns the service whose main process is pid. It returns "" if there is none, or if there
// is no systemd.
func (m *Manager) MainOf(ctx context.Context, pid int) (name string, err error) {
	return orAbsent("")(ask(ctx, m, "find unit of main process", func(ctx context.Context, conn *dbus.Conn) (string, error) {
		unit, err := ownerOf(ctx, conn, pid)
		if err != nil || unit == "" {
			return "", err
		}
		if is, err := isMain(ctx, conn, unit, pid); err != nil || !is {
			return "", err
		}
		err = bus.Property(ctx, conn, bus.Systemd, unit, systemdUnit, "Id", &name)
		return name, err
	}))
}

// ownerOf returns the unit to which a process belongs, or "".
func ownerOf(ctx context.Context, conn *dbus.Conn, pid int) (unit dbus.ObjectPath, err error) {
	err = bus.Call(ctx, conn, bus.Systemd, bus.SystemdPath, systemdManager+".GetUnitByPID", &unit, uint32(pid))
	if bus.ErrorName(err) == "org.freedesktop.systemd1.NoUnitForPID" {
		return "", nil
	}
	return unit, err
}

// isMain reports whether a unit is a service whose main process is pid.
func isMain(ctx context.Context, conn *dbus.Conn, unit dbus.ObjectPath, pid int) (bool, error) {
	var main uint32
	err := bus.Property(ctx, conn, bus.Systemd, unit, systemdService, "MainPID", &main)
	if bus.ErrorName(err) != "" { // not a service
		return false, nil
	}
	return main == uint32(pid), err
}

// isOf reports whether a process is in a unit's cgroup, or is the unit's main process elsewhere.
func isOf(ctx context.Context, conn *dbus.Conn, unit dbus.ObjectPath, pid int) (bool, error) {
	if owner, err := ownerOf(ctx, conn, pid); err != nil || owner == unit {
		return err == nil, err
	}
	return isMain(ctx, conn, unit, pid)
}
