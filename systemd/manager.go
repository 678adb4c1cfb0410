package systemd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"

	"hostler.io/hostler/systemd/bus"
)

// ErrNotSystemd means that this host is not run by systemd, or that its manager
// cannot be reached from here.
var ErrNotSystemd = errors.New("no systemd manager found")

// ManagerSocket is systemd's private socket, which works when the bus is gone.
const ManagerSocket = "/run/systemd/private"

// managerTimeout bounds queries without deadline: they are made when little time is left.
const managerTimeout = 2 * time.Second

// redialPause is how long a socket on which nobody listens is left alone.
const redialPause = 20 * time.Millisecond

// rebindBound is how long a socket may be missing that was there: a systemd that executes
// itself again removes it before it makes it again.
const rebindBound = 500 * time.Millisecond

// Manager asks systemd itself, PID 1, over its private socket: the bus may be
// stopped before the agent is. Only root is let in. It connects for each
// question. Safe for concurrent use.
type Manager struct {
	dial func(context.Context) (*dbus.Conn, error)
	was  bool // the socket was there at the start
}

// NewManager returns a Manager that asks at socket, ManagerSocket if empty.
func NewManager(socket string) *Manager {
	socket = cmp.Or(socket, ManagerSocket)
	_, err := os.Stat(socket)
	return &Manager{was: err == nil, dial: func(ctx context.Context) (*dbus.Conn, error) {
		return bus.Dial(ctx, "unix:path="+dbus.EscapeBusAddressValue(socket), false)
	}}
}

// NewManagerOver returns a Manager that uses streams of dial, one for each query. It is for tests
// with their own time, which sockets do not follow.
func NewManagerOver(dial func(context.Context) (io.ReadWriteCloser, error)) *Manager {
	return &Manager{dial: func(ctx context.Context) (*dbus.Conn, error) {
		stream, err := dial(ctx)
		if err != nil {
			return nil, err
		}
		return bus.Over(ctx, stream, false)
	}}
}

// Stopping reports whether the whole system is going down (to power off, reboot,
// halt, kexec or soft-reboot), rather than this service alone. ErrNotSystemd
// where there is no systemd to ask.
func (m *Manager) Stopping(ctx context.Context) (bool, error) {
	return ask(ctx, m, "get system state from systemd", func(ctx context.Context, conn *dbus.Conn) (bool, error) {
		var state string
		err := bus.Property(ctx, conn, bus.Systemd, bus.SystemdPath, systemdManager, "SystemState", &state)
		if err != nil || state == "stopping" {
			return err == nil, err
		}
		// While it still boots, systemd says "starting" whatever continues.
		return shutdownQueued(ctx, conn)
	})
}

// shutdownQueued reports whether shutdown.target, which every way down pulls in,
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
	return ask(ctx, m, "get start time of systemd", func(ctx context.Context, conn *dbus.Conn) (time.Time, error) {
		var microseconds uint64
		err := bus.Property(ctx, conn, bus.Systemd, bus.SystemdPath, systemdManager, "UserspaceTimestamp", &microseconds)
		return time.UnixMicro(int64(microseconds)), err
	})
}

// ask queries the manager over a new connection. An error contains the operation, and there is no
// answer then: ErrNotSystemd if systemd does not run.
func ask[T any](ctx context.Context, m *Manager, operation string, question func(context.Context, *dbus.Conn) (T, error)) (T, error) {
	var answer, none T
	conn, ctx, closeAll, err := m.connect(ctx)
	if err == nil {
		defer closeAll()
		answer, err = question(ctx, conn)
	}
	if err != nil {
		return none, fmt.Errorf("%s: %w", operation, err)
	}
	return answer, nil
}

// orAbsent has absent for an answer where there is no systemd.
func orAbsent[T any](absent T) func(T, error) (T, error) {
	return func(answer T, err error) (T, error) {
		if errors.Is(err, ErrNotSystemd) {
			return absent, nil
		}
		return answer, err
	}
}

// connect connects to the manager. Nobody may listen for a moment, while systemd executes
// itself again, and for less than that there may be no socket: that is waited out.
func (m *Manager) connect(ctx context.Context) (*dbus.Conn, context.Context, func(), error) {
	cancel := func() {}
	if _, ok := ctx.Deadline(); !ok {
		ctx, cancel = context.WithTimeout(ctx, managerTimeout)
	}
	asked := time.Now()
	for {
		conn, err := m.dial(ctx)
		if err == nil {
			return conn, ctx, func() { conn.Close(); cancel() }, nil
		}
		missing := errors.Is(err, fs.ErrNotExist)
		back := missing && m.was && time.Since(asked) < rebindBound // it may be, by and by
		if errors.Is(err, unix.ECONNREFUSED) || back {
			select {
			case <-time.After(redialPause):
				continue
			case <-ctx.Done():
			}
		}
		cancel()
		if missing && !back {
			err = fmt.Errorf("%w: %w", ErrNotSystemd, err)
		}
		return nil, nil, nil, err
	}
}
