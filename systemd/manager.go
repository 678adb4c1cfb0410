package systemd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"time"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"

	"hostler.io/hostler/systemd/bus"
)

// ErrNotSystemd means that systemd does not run this host, or that its manager cannot be reached.
var ErrNotSystemd = errors.New("no systemd manager found")

// ManagerSocket is systemd's private socket, which works even when the bus has stopped.
const ManagerSocket = "/run/systemd/private"

// managerTimeout bounds queries without a deadline. It is short, because queries are made when
// little time is left.
const managerTimeout = 2 * time.Second

// redialPause is the pause before another attempt if nobody listens on the socket.
const redialPause = 20 * time.Millisecond

// rebindBound is how long an existing socket may be missing: when systemd re-executes itself, it
// removes the socket before it creates it again.
const rebindBound = 500 * time.Millisecond

// Manager queries systemd itself, PID 1, over its private socket, because the bus may be stopped
// before the agent. The socket accepts only root. It connects for each query. It is safe for
// concurrent use.
type Manager struct {
	dial func(context.Context) (*dbus.Conn, error)
	was  bool // whether the socket existed at the start
}

// NewManager returns a Manager for a socket, by default ManagerSocket.
func NewManager(socket string) *Manager {
	socket = cmp.Or(socket, ManagerSocket)
	_, err := os.Stat(socket)
	m := NewManagerOver(func(ctx context.Context) (io.ReadWriteCloser, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	})
	m.was = err == nil
	return m
}

// NewManagerOver returns a Manager that uses streams of dial, one for each query. It is for tests
// with synthetic time, which sockets do not follow.
func NewManagerOver(dial func(context.Context) (io.ReadWriteCloser, error)) *Manager {
	return &Manager{dial: func(ctx context.Context) (*dbus.Conn, error) {
		stream, err := dial(ctx)
		if err != nil {
			return nil, err
		}
		return bus.Over(ctx, stream, false)
	}}
}

// Stopping reports whether the whole system is shutting down (power-off, reboot, halt, kexec or
// soft-reboot), rather than only this service. Without systemd the error is ErrNotSystemd.
func (m *Manager) Stopping(ctx context.Context) (bool, error) {
	return ask(ctx, m, "get system state from systemd", func(ctx context.Context, conn *dbus.Conn) (bool, error) {
		var state string
		err := bus.Property(ctx, conn, bus.Systemd, bus.SystemdPath, systemdManager, "SystemState", &state)
		if err != nil || state == "stopping" {
			return err == nil, err
		}
		// During boot, SystemState is "starting" even if the system is about to shut down.
		return shutdownQueued(ctx, conn)
	})
}

// shutdownQueued reports whether shutdown.target, which is part of every kind of shutdown, is
// active or has a job.
func shutdownQueued(ctx context.Context, conn *dbus.Conn) (bool, error) {
	var unit dbus.ObjectPath
	err := bus.Call(ctx, conn, bus.Systemd, bus.SystemdPath, systemdManager+".GetUnit", &unit, "shutdown.target")
	if bus.ErrorName(err) == "org.freedesktop.systemd1.NoSuchUnit" {
		return false, nil // not loaded
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

// StartedAt returns when this manager started user space. With the kernel's boot ID it identifies a
// boot, because a soft-reboot keeps the boot ID. It is the wall clock's time at that moment; later
// changes of the clock do not affect it.
func (m *Manager) StartedAt(ctx context.Context) (time.Time, error) {
	return ask(ctx, m, "get start time of systemd", func(ctx context.Context, conn *dbus.Conn) (time.Time, error) {
		var microseconds uint64
		err := bus.Property(ctx, conn, bus.Systemd, bus.SystemdPath, systemdManager, "UserspaceTimestamp", &microseconds)
		return time.UnixMicro(int64(microseconds)), err
	})
}

// ask queries the manager over a new connection. Errors contain the operation, and come without an
// answer. If systemd does not run, the error is ErrNotSystemd.
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

// orAbsent replaces the error ErrNotSystemd by the answer absent.
func orAbsent[T any](absent T) func(T, error) (T, error) {
	return func(answer T, err error) (T, error) {
		if errors.Is(err, ErrNotSystemd) {
			return absent, nil
		}
		return answer, err
	}
}

// connect connects to the manager. While systemd re-executes itself, nobody listens on the socket,
// and for a shorter time it does not exist. connect waits for the end of that.
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
		back := missing && m.was && time.Since(asked) < rebindBound // the socket may reappear
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
