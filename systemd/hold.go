package systemd

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"syscall"
	"time"

	"github.com/godbus/dbus/v5"

	"hostler.io/hostler/systemd/bus"
)

// holdPoll is how often systemd is asked whether the holder has started.
const holdPoll = 5 * time.Millisecond

// removeBound bounds the removal of a failed hold.
const removeBound = time.Second

// Hold is a queued stop of a unit that has not begun.
type Hold struct {
	manager *Manager
	unit    string
	holder  string // the unit whose own stop takes as long as the hold
	job     dbus.ObjectPath
}

// HoldStop queues the stop of a unit, which systemd begins after Release, or once atMost has
// passed. Until then systemd sends the unit's processes no signal, and does not restart the unit if
// they end, whatever its Restart= says. HoldStop returns nil if the unit does not run or is being
// stopped, or if there is no systemd. It calls before just before it queues the stop, as StopUnit
// does.
//
// The hold is a transient unit, ordered after the held unit, so that it stops first. Its ExecStop
// takes time.
func (m *Manager) HoldStop(ctx context.Context, name string, atMost time.Duration, before func(ctx context.Context, names []string) error) (*Hold, error) {
	h := &Hold{manager: m, unit: name, holder: "hostler-hold-" + name}
	return orAbsent[*Hold](nil)(ask(ctx, m, "delay stop of "+name, func(ctx context.Context, conn *dbus.Conn) (*Hold, error) {
		switch _, active, err := unitState(ctx, conn, name); {
		case err != nil || over(active) || active == "deactivating":
			return nil, err
		}
		units := append([]string{name}, stoppedWith(ctx, conn, name)...)
		var job dbus.ObjectPath
		err := h.start(ctx, conn, units, atMost)
		if err == nil {
			err = bus.Call(ctx, conn, bus.Systemd, bus.SystemdPath, systemdManager+".StopUnit", &job, h.holder, "replace")
		}
		if err == nil {
			err = before(ctx, units)
		}
		if err == nil {
			err = bus.Call(ctx, conn, bus.Systemd, bus.SystemdPath, systemdManager+".StopUnit", &h.job, name, "replace")
		}
		if err != nil {
			h.remove(context.WithoutCancel(ctx), conn)
			return nil, err
		}
		return h, nil
	}))
}

// start starts the holder, a unit whose stop takes time and which is ordered after units, and waits
// until it is active.
func (h *Hold) start(ctx context.Context, conn *dbus.Conn, units []string, atMost time.Duration) error {
	type command struct {
		Path    string
		Args    []string
		Ignored bool
	}
	type property struct {
		Name  string
		Value dbus.Variant
	}
	seconds := strconv.Itoa(int(math.Ceil(atMost.Seconds())))
	properties := []property{
		{"Description", dbus.MakeVariant("Delay the stop of " + h.unit + " until its containers have exited")},
		{"DefaultDependencies", dbus.MakeVariant(false)},
		{"After", dbus.MakeVariant(units)},
		{"CollectMode", dbus.MakeVariant("inactive-or-failed")},
		{"Type", dbus.MakeVariant("oneshot")},
		{"RemainAfterExit", dbus.MakeVariant(true)},
		{"ExecStart", dbus.MakeVariant([]command{{"/bin/true", []string{"true"}, false}})},
		{"ExecStop", dbus.MakeVariant([]command{{"/bin/sleep", []string{"sleep", seconds}, true}})}, // errors are ignored, because it is killed
		{"TimeoutStopUSec", dbus.MakeVariant(uint64(math.MaxUint64))},
	}
	var job dbus.ObjectPath
	err := bus.Call(ctx, conn, bus.Systemd, bus.SystemdPath, systemdManager+".StartTransientUnit", &job, h.holder, "fail", properties, []struct {
		Name       string
		Properties []property
	}{})
	for err == nil {
		var active string
		switch _, active, err = unitState(ctx, conn, h.holder); {
		case err != nil:
		case active == "active":
			return nil
		case active == "failed" || active == "":
			return fmt.Errorf("start %s: it does not start", h.holder)
		}
		select {
		case <-time.After(holdPoll):
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	return err
}

// Release begins the stop.
func (h *Hold) Release(ctx context.Context) error {
	_, err := ask(ctx, h.manager, "release delayed stop of "+h.unit, func(ctx context.Context, conn *dbus.Conn) (struct{}, error) {
		return struct{}{}, h.kill(ctx, conn)
	})
	return err
}

// Cancel cancels the stop.
func (h *Hold) Cancel(ctx context.Context) error {
	_, err := ask(ctx, h.manager, "cancel delayed stop of "+h.unit, func(ctx context.Context, conn *dbus.Conn) (struct{}, error) {
		// A shutdown that has begun meanwhile needs the stop.
		if shuttingDown, err := shutdownQueued(ctx, conn); err != nil || shuttingDown {
			return struct{}{}, errors.Join(err, h.kill(ctx, conn))
		}
		err := bus.Call(ctx, conn, bus.Systemd, h.job, bus.Systemd+".Job.Cancel", nil)
		if err != nil && bus.ErrorName(err) != "org.freedesktop.DBus.Error.UnknownObject" { // UnknownObject: the job is over, or was replaced
			return struct{}{}, err
		}
		return struct{}{}, h.kill(ctx, conn)
	})
	return err
}

// kill kills the command for which the stop waits.
func (h *Hold) kill(ctx context.Context, conn *dbus.Conn) error {
	err := bus.Call(ctx, conn, bus.Systemd, bus.SystemdPath, systemdManager+".KillUnit", nil, h.holder, "all", int32(syscall.SIGTERM))
	if name := bus.ErrorName(err); name == "org.freedesktop.systemd1.NoSuchUnit" || name == "org.freedesktop.systemd1.NoSuchProcess" {
		return nil // it has ended
	}
	return err
}

// remove removes the rest of a failed hold, including one of an earlier process. What it cannot
// remove has no effect, and ends by itself.
func (h *Hold) remove(ctx context.Context, conn *dbus.Conn) {
	ctx, cancel := context.WithTimeout(ctx, removeBound)
	defer cancel()
	var job dbus.ObjectPath
	_ = bus.Call(ctx, conn, bus.Systemd, bus.SystemdPath, systemdManager+".StopUnit", &job, h.holder, "replace")
	_ = h.kill(ctx, conn)
}
