package systemd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/godbus/dbus/v5"

	"hostler.io/hostler/systemd/bus"
)

// alonePoll is how often a unit that stops is looked at.
const alonePoll = 50 * time.Millisecond

// StopAlone stops the unit of that name and no other, waits until it has ended or ctx ends,
// and tells whether there was anything to stop. It does so also where the whole system stops
// and that unit's turn would come after this service's: it joins the job that is queued, which
// then waits for nobody (mode ignore-dependencies in org.freedesktop.systemd1(5)). A unit that
// systemd would start again whenever it ends stays down.
func (m *Manager) StopAlone(ctx context.Context, name string) (ran bool, err error) {
	operation := "have systemd stop " + name
	conn, ctx, closeAll, err := m.connect(ctx)
	if errors.Is(err, ErrNotSystemd) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("%s: %w", operation, err)
	}
	defer closeAll()
	_, active, err := unitState(ctx, conn, name)
	if err == nil && !over(active) {
		ran = true
		var job dbus.ObjectPath
		err = bus.Call(ctx, conn, bus.Systemd, bus.SystemdPath, systemdManager+".StopUnit", &job, name, "ignore-dependencies")
	}
	for err == nil && !over(active) {
		select {
		case <-time.After(alonePoll):
			_, active, err = unitState(ctx, conn, name)
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	if err != nil {
		return ran, fmt.Errorf("%s: %w", operation, err)
	}
	return ran, nil
}

// StartUnit begins to start the unit of that name, as `systemctl start --no-block` does, and
// fails where it is about to be stopped.
func (m *Manager) StartUnit(ctx context.Context, name string) error {
	operation := "have systemd start " + name
	conn, ctx, closeAll, err := m.connect(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", operation, err)
	}
	defer closeAll()
	var job dbus.ObjectPath
	if err := bus.Call(ctx, conn, bus.Systemd, bus.SystemdPath, systemdManager+".StartUnit", &job, name, "fail"); err != nil {
		return fmt.Errorf("%s: %w", operation, err)
	}
	return nil
}
