package systemd

import (
	"context"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/systemd/bus"
)

// StoredLock is the name of the lock in systemd's descriptor store (FDNAME=), so that a shutdown
// cannot slip through during a restart or crash of this service. The unit needs
// FileDescriptorStoreMax=.
const StoredLock = "inhibit"

// Inhibit takes a delay lock on shutdown. If this process already holds one, or systemd stored one
// of an earlier process, and logind still honors it, Inhibit returns that one. Closers from earlier
// calls then have no effect. If systemd has not stored the lock, it tries again. So call Inhibit
// after every loss of logind or the bus; there is only ever one lock.
//
// If logind refuses a new lock because the shutdown has begun, the error is
// shutdown.ErrShutdownInProgress.
func (l *Logind) Inhibit(ctx context.Context, why string) (io.Closer, error) {
	ctx, cancel := l.bus.Bounded(ctx)
	defer cancel()
	l.locking.Lock()
	defer l.locking.Unlock()

	var delayed string // not the list of locks, which any user can make too large for an answer
	if err := get(ctx, l.bus, "DelayInhibited", &delayed); err != nil {
		return nil, err
	}
	if again := l.reuse(inhibits(delayed, "shutdown")); again != nil {
		return again, nil
	}
	file, err := l.newLock(ctx, why)
	if err != nil {
		return nil, err
	}
	return l.hold(file), nil
}

// newLock requests a lock from logind.
func (l *Logind) newLock(ctx context.Context, why string) (*os.File, error) {
	const operation = "take a shutdown lock from logind"
	file, err := l.bus.CallForFile(ctx, loginName, loginPath, loginManager+".Inhibit", "shutdown", l.options.Who, why, "delay")
	switch {
	case bus.ErrorName(err) == "org.freedesktop.login1.OperationInProgress":
		return nil, fmt.Errorf("%s: %w", operation, shutdown.ErrShutdownInProgress)
	case err != nil:
		return nil, fault(operation, err)
	}
	return file, nil
}

// honoured reports whether file is a lock for which logind still waits: the write end of a fifo
// (/run/systemd/inhibit/N.ref) whose read end is open. After the last reader has closed it, poll
// reports an error.
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
