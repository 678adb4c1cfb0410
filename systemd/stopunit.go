package systemd

import (
	"context"
	"path"
	"slices"
	"time"

	"github.com/godbus/dbus/v5"

	"hostler.io/hostler/systemd/bus"
)

// stoppedWithBound is how long the stop of a unit waits until it is known who stops with it: that it is
// stopped matters more.
const stoppedWithBound = 500 * time.Millisecond

// StopUnit begins to stop the unit of that name that a process is of, as `systemctl stop
// --no-block`, and reports whether there was anything to stop: false where no such unit
// runs, where the process is none of it, and where there is no systemd. Process 0 is of
// any. Doing so while it stops changes nothing. Right before systemd is asked, which is only
// where there is something to stop, it calls before with the names of that unit and of those
// that systemd stops with it.
func (m *Manager) StopUnit(ctx context.Context, name string, pid int, before func(ctx context.Context, names []string)) (stopping bool, err error) {
	return orAbsent(false)(ask(ctx, m, "stop "+name, func(ctx context.Context, conn *dbus.Conn) (bool, error) {
		return stopUnit(ctx, conn, name, pid, before)
	}))
}

func stopUnit(ctx context.Context, conn *dbus.Conn, name string, pid int, before func(context.Context, []string)) (bool, error) {
	unit, active, err := unitState(ctx, conn, name)
	if err != nil || over(active) {
		return false, err
	}
	if pid != 0 {
		if of, err := isOf(ctx, conn, unit, pid); err != nil || !of {
			return false, err
		}
	}
	before(ctx, append([]string{name}, stoppedWith(ctx, conn, name)...))
	var job dbus.ObjectPath
	return true, bus.Call(ctx, conn, bus.Systemd, bus.SystemdPath, systemdManager+".StopUnit", &job, name, "replace")
}

// stoppedWith returns the running units that systemd stops together with a unit, and those that it
// stops with these, as far as systemd answers soon. Units that are stopping already are left out.
// Targets are left out: they have no processes, and starting one again would start everything that
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

// UnitStops reports whether the stop of a unit has started or is over, and not while it waits
// for others to stop first. A unit that is not loaded, and any where there is no systemd,
// has stopped.
func (m *Manager) UnitStops(ctx context.Context, name string) (bool, error) {
	return orAbsent(true)(ask(ctx, m, "get state of "+name+" from systemd", func(ctx context.Context, conn *dbus.Conn) (bool, error) {
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

// over reports whether a unit of an ActiveState has nothing to stop.
func over(active string) bool { return active == "" || active == "inactive" || active == "failed" }

// MainOf names the service whose main process that is; none if it is of no service, or not the
// main one, and where there is no systemd.
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

// ownerOf is the unit that a process belongs to, if any.
func ownerOf(ctx context.Context, conn *dbus.Conn, pid int) (unit dbus.ObjectPath, err error) {
	err = bus.Call(ctx, conn, bus.Systemd, bus.SystemdPath, systemdManager+".GetUnitByPID", &unit, uint32(pid))
	if bus.ErrorName(err) == "org.freedesktop.systemd1.NoUnitForPID" {
		return "", nil
	}
	return unit, err
}

// isMain reports whether a process is the main one of a unit, if that is a service.
func isMain(ctx context.Context, conn *dbus.Conn, unit dbus.ObjectPath, pid int) (bool, error) {
	var main uint32
	err := bus.Property(ctx, conn, bus.Systemd, unit, systemdService, "MainPID", &main)
	if bus.ErrorName(err) != "" { // it is no service
		return false, nil
	}
	return main == uint32(pid), err
}

// isOf reports whether a process is in a unit's cgroup, or its main process elsewhere.
func isOf(ctx context.Context, conn *dbus.Conn, unit dbus.ObjectPath, pid int) (bool, error) {
	if owner, err := ownerOf(ctx, conn, pid); err != nil || owner == unit {
		return err == nil, err
	}
	return isMain(ctx, conn, unit, pid)
}
