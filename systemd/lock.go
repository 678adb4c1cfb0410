package systemd

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"

	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/systemd/bus"
)

// StoredLock is the name under which systemd keeps the lock
// (FDNAME=), so that a restart or crash of this service does not let a shutdown
// through. The unit needs FileDescriptorStoreMax=.
const StoredLock = "inhibit"

// Inhibit takes a delay lock on shutdown. Where this process holds one already,
// or systemd kept one of an earlier process, and logind still
// honours it, that one is handed out again, and closers handed out before turn
// void; if systemd did not take it, it is offered once more. So
// Inhibit may be called after every loss of logind or the bus, and there is one
// lock in the end. shutdown.ErrShutdownInProgress where logind refuses a new
// lock because the shutdown has started.
func (l *Logind) Inhibit(ctx context.Context, why string) (io.Closer, error) {
	ctx, cancel := l.bus.Bounded(ctx)
	defer cancel()
	l.locking.Lock()
	defer l.locking.Unlock()

	locks, err := l.ListInhibitors(ctx)
	if err != nil {
		return nil, err
	}
	if again := l.takeUp(l.listed(locks)); again != nil {
		return again, nil
	}
	file, err := l.newLock(ctx, why)
	if err != nil {
		return nil, err
	}
	return l.hold(file), nil
}

// listed reports whether logind knows of any delay lock on shutdown in our name.
func (l *Logind) listed(locks []InhibitorLock) bool {
	for _, k := range locks {
		if k.Who == l.options.Who && k.Mode == "delay" && k.Inhibits("shutdown") {
			return true
		}
	}
	return false
}

// newLock requests a lock from logind. ctx does not cancel the call: a late answer would carry a
// descriptor that is never closed, and would delay the shutdown until this process ends.
func (l *Logind) newLock(ctx context.Context, why string) (*os.File, error) {
	conn, err := l.bus.Get(ctx)
	if err != nil {
		return nil, err
	}
	answer := make(chan *dbus.Call, 1)
	conn.Object(loginName, loginPath).Go(loginManager+".Inhibit", dbus.FlagNoAutoStart, answer,
		"shutdown", l.options.Who, why, "delay")
	const operation = "take a shutdown lock from logind"
	select {
	case reply := <-answer:
		file, err := lockFile(reply)
		if bus.ErrorName(err) == "org.freedesktop.login1.OperationInProgress" {
			return nil, fmt.Errorf("%s: %w", operation, shutdown.ErrShutdownInProgress)
		}
		if err != nil {
			bus.HangUp(conn, err)
			return nil, fault(operation, err)
		}
		return file, nil
	case <-ctx.Done():
		go func() { // ends with the answer or with the connection
			if file, err := lockFile(<-answer); err == nil {
				file.Close()
			}
		}()
		return nil, fmt.Errorf("%s: %w", operation, ctx.Err())
	}
}

// lockFile puts the descriptor of an answer under the care of an os.File at
// once: from here on no number is closed that another client has by then.
func lockFile(reply *dbus.Call) (*os.File, error) {
	var fd dbus.UnixFD
	if err := reply.Store(&fd); err != nil {
		return nil, err
	}
	unix.CloseOnExec(int(fd))
	return os.NewFile(uintptr(fd), StoredLock), nil
}

// honoured reports whether file is a lock that logind still waits for: the write end of a fifo
// (/run/systemd/inhibit/N.ref) whose read end is open. Poll reports an error after the last reader
// has closed it.
func honoured(file *os.File) bool {
	raw, err := file.SyscallConn()
	if err != nil {
		return false
	}
	alive := false
	err = raw.Control(func(fd uintptr) {
		var stat unix.Stat_t
		if unix.Fstat(int(fd), &stat) != nil || stat.Mode&unix.S_IFMT != unix.S_IFIFO {
			return
		}
		flags, err := unix.FcntlInt(fd, unix.F_GETFL, 0)
		if err != nil || flags&unix.O_ACCMODE != unix.O_WRONLY {
			return
		}
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
		if _, err := unix.Poll(poll, 0); err != nil {
			return
		}
		alive = poll[0].Revents&(unix.POLLERR|unix.POLLHUP|unix.POLLNVAL) == 0
	})
	return err == nil && alive
}
