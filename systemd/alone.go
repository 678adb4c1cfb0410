package systemd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/godbus/dbus/v5"

	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/systemd/bus"
)

// alonePoll is how often the state of a stopping unit is checked.
const alonePoll = 50 * time.Millisecond

// UnitRuns reports whether a unit has anything to stop: whether it runs, starts, stops, or has a
// queued start job. Without systemd, it returns false.
func (m *Manager) UnitRuns(ctx context.Context, name string) (bool, error) {
	return orAbsent(false)(ask(ctx, m, "get state of "+name+" from systemd", func(ctx context.Context, conn *dbus.Conn) (bool, error) {
		done, err := isInactive(ctx, conn, name)
		return !done, err
	}))
}

// StopAlone stops this unit and no other, waits until it has ended or ctx ends, and reports whether
// there was anything to stop. It also works while the whole system stops and the unit would stop
// after this service. It joins the queued job, which then does not wait (mode ignore-dependencies
// in org.freedesktop.systemd1(5)). A unit with Restart= stays down, and so does a unit that is
// about to start: its job is replaced.
func (m *Manager) StopAlone(ctx context.Context, name string) (ran bool, err error) {
	for {
		stopping, err := m.stopAlone(ctx, name)
		ran = ran || stopping
		switch {
		case err == nil, errors.Is(err, ErrNotSystemd) && !ran:
			return ran, nil
		case !ran && !bus.Severed(err), ctx.Err() != nil, bus.ErrorName(err) != "":
			return ran, fmt.Errorf("stop %s: %w", name, err)
		}
		// The connection was lost, for example because systemd re-executes itself.
		select {
		case <-time.After(alonePoll):
		case <-ctx.Done():
		}
	}
}

// stopAlone is StopAlone over one connection.
func (m *Manager) stopAlone(ctx context.Context, name string) (ran bool, err error) {
	conn, ctx, closeAll, err := m.connect(ctx)
	if err != nil {
		return false, err
	}
	defer closeAll()
	done, err := isInactive(ctx, conn, name)
	if err == nil && !done {
		ran = true
		var job dbus.ObjectPath
		err = bus.Call(ctx, conn, bus.Systemd, bus.SystemdPath, systemdManager+".StopUnit", &job, name, "ignore-dependencies")
	}
	for err == nil && !done {
		select {
		case <-time.After(alonePoll):
			done, err = isInactive(ctx, conn, name)
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	return ran, err
}

// isInactive reports whether a unit does not run, and has no job that starts it.
func isInactive(ctx context.Context, conn *dbus.Conn, name string) (bool, error) {
	unit, active, err := unitState(ctx, conn, name)
	if err != nil || !over(active) || unit == "" {
		return unit == "", err
	}
	var queued job
	if err := bus.Property(ctx, conn, bus.Systemd, unit, systemdUnit, "Job", &queued); err != nil || queued.ID == 0 {
		return err == nil, err
	}
	var kind string
	err = bus.Property(ctx, conn, bus.Systemd, queued.Path, bus.Systemd+".Job", "JobType", &kind)
	if bus.ErrorName(err) == "org.freedesktop.DBus.Error.UnknownObject" {
		return isInactive(ctx, conn, name) // the job is over
	}
	return kind == "stop", err
}

// job is a unit's property Job; ID 0 means no job.
type job struct {
	ID   uint32
	Path dbus.ObjectPath
}

// conditionUnmet replaces a reason that systemd only logs.
const conditionUnmet = "a dependency did not start, or a condition of the unit is not met"

// UnitStart reports whether systemd starts a unit, or has a job for it. If not, and the unit has
// failed after since, failed is the result, such as "exit-code".
func (m *Manager) UnitStart(ctx context.Context, name string, since time.Time) (starting bool, failed string, err error) {
	unit, err := m.Unit(ctx, name)
	switch {
	case err != nil:
		return false, "", err
	case unit.Job, unit.Starts():
		return true, "", nil
	case unit.ActiveState == "failed":
		return false, unit.Result, nil
	case unit.ActiveState == "inactive" && unit.Began.Before(since):
		return false, conditionUnmet, nil
	}
	return false, "", nil
}

// UnitChanges reports whether a unit is stopping, or systemd has a job for it.
func (m *Manager) UnitChanges(ctx context.Context, name string) (bool, error) {
	unit, err := m.Unit(ctx, name)
	return unit.Job || unit.ActiveState == "deactivating", err
}

// StartUnit starts a unit without waiting, like `systemctl start --no-block`. It fails with
// shutdown.ErrStillStops if the unit is stopping or about to stop: a start would cancel that, and
// the shutdown with it. It fails with shutdown.ErrNoService if the unit does not exist, or may not
// be started.
func (m *Manager) StartUnit(ctx context.Context, name string) error {
	_, err := ask(ctx, m, "start "+name, func(ctx context.Context, conn *dbus.Conn) (job dbus.ObjectPath, err error) {
		err = bus.Call(ctx, conn, bus.Systemd, bus.SystemdPath, systemdManager+".StartUnit", &job, name, "fail")
		switch bus.ErrorName(err) {
		case "org.freedesktop.systemd1.NoSuchUnit", "org.freedesktop.systemd1.UnitMasked", "org.freedesktop.systemd1.OnlyByDependency":
			err = fmt.Errorf("%w: %w", shutdown.ErrNoService, err)
		case "org.freedesktop.systemd1.TransactionIsDestructive":
			err = fmt.Errorf("%w: %w", shutdown.ErrStillStops, err)
		}
		return job, err
	})
	return err
}
