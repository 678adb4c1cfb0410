package systemd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"

	"hostler.io/hostler/systemd/bus"
)

// ErrNotSystemd tells that this host is not run by systemd, or that its manager
// cannot be reached from here.
var ErrNotSystemd = errors.New("no systemd manager here")

// ManagerSocket is systemd's private socket, which works when the bus is gone.
const ManagerSocket = "/run/systemd/private"

// managerTimeout bounds a question whose context has no deadline: it is asked
// when there is little time.
const managerTimeout = 2 * time.Second

// redialPause is how long a socket on which nobody listens is left alone.
const redialPause = 20 * time.Millisecond

// Manager asks systemd itself, PID 1, over its private socket: the bus may be
// stopped before the agent is. Only root is let in. It connects for each
// question. Safe for concurrent use.
type Manager struct {
	socket string
}

// NewManager returns a Manager that asks at socket, ManagerSocket if empty.
func NewManager(socket string) *Manager {
	return &Manager{socket: cmp.Or(socket, ManagerSocket)}
}

// Stopping tells whether the whole system is going down (to power off, reboot,
// halt, kexec or soft-reboot), rather than this service alone. ErrNotSystemd
// where there is no systemd to ask.
func (m *Manager) Stopping(ctx context.Context) (bool, error) {
	const operation = "ask systemd whether the system is stopping"
	conn, ctx, closeAll, err := m.connect(ctx)
	if err != nil {
		return false, fmt.Errorf("%s: %w", operation, err)
	}
	defer closeAll()
	var state string
	if err := bus.Property(ctx, conn, bus.Systemd, bus.SystemdPath, systemdManager, "SystemState", &state); err != nil {
		return false, fmt.Errorf("%s: %w", operation, err)
	}
	if state == "stopping" {
		return true, nil
	}
	// While it still boots, systemd says "starting" whatever goes on.
	stopping, err := shutdownQueued(ctx, conn)
	if err != nil {
		return false, fmt.Errorf("%s: %w", operation, err)
	}
	return stopping, nil
}

// shutdownQueued tells whether shutdown.target, which every way down pulls in,
// is active or about to be.
func shutdownQueued(ctx context.Context, conn *dbus.Conn) (bool, error) {
	var unit dbus.ObjectPath
	err := bus.Call(ctx, conn, bus.Systemd, bus.SystemdPath, systemdManager+".GetUnit", &unit, "shutdown.target")
	if bus.ErrorName(err) == "org.freedesktop.systemd1.NoSuchUnit" {
		return false, nil // not even loaded
	}
	if err != nil {
		return false, err
	}
	var active string
	if err := bus.Property(ctx, conn, bus.Systemd, unit, systemdUnit, "ActiveState", &active); err != nil {
		return false, err
	}
	if active == "active" || active == "activating" {
		return true, nil
	}
	var job struct {
		ID   uint32
		Path dbus.ObjectPath
	}
	if err := bus.Property(ctx, conn, bus.Systemd, unit, systemdUnit, "Job", &job); err != nil {
		return false, err
	}
	return job.ID != 0, nil
}

// StartedAt is when this manager started user space. With the kernel's boot ID
// it identifies a boot: a soft-reboot keeps the boot ID. It is the wall clock's
// reading of then, which later steps of the clock do not change.
func (m *Manager) StartedAt(ctx context.Context) (time.Time, error) {
	const operation = "ask systemd when it started"
	conn, ctx, closeAll, err := m.connect(ctx)
	if err != nil {
		return time.Time{}, fmt.Errorf("%s: %w", operation, err)
	}
	defer closeAll()
	var microseconds uint64
	if err := bus.Property(ctx, conn, bus.Systemd, bus.SystemdPath, systemdManager, "UserspaceTimestamp", &microseconds); err != nil {
		return time.Time{}, fmt.Errorf("%s: %w", operation, err)
	}
	return time.UnixMicro(int64(microseconds)), nil
}

// connect connects to the manager. Nobody may listen for a moment, while systemd executes
// itself anew: that is waited out.
func (m *Manager) connect(ctx context.Context) (*dbus.Conn, context.Context, func(), error) {
	cancel := func() {}
	if _, ok := ctx.Deadline(); !ok {
		ctx, cancel = context.WithTimeout(ctx, managerTimeout)
	}
	for {
		conn, err := bus.Dial(ctx, "unix:path="+dbus.EscapeBusAddressValue(m.socket), false)
		if err == nil {
			return conn, ctx, func() { conn.Close(); cancel() }, nil
		}
		if errors.Is(err, unix.ECONNREFUSED) {
			select {
			case <-time.After(redialPause):
				continue
			case <-ctx.Done():
			}
		}
		cancel()
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%w: %w", ErrNotSystemd, err)
		}
		return nil, nil, nil, err
	}
}
