package systemd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"

	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/systemd/bus"
)

// StoredLock is the name under which the service manager keeps the lock
// (FDNAME=), so that a restart or crash of this service does not let a shutdown
// through. The unit needs FileDescriptorStoreMax=.
const StoredLock = "inhibit"

// dropBound is how long the service manager is asked to drop a lock.
const dropBound = 10 * time.Second

// lock is what Inhibit hands out: a claim on the descriptor that logind waits
// for. The claim handed out last owns the descriptor; closing an earlier one
// does nothing, so that nobody closes what he no longer has.
type lock struct {
	logind *Logind
	file   *os.File
	stored bool // guarded by logind.mu: the service manager keeps a duplicate
}

// Close lets the shutdown go on: logind sees the last descriptor closed. An
// error says that the service manager still keeps its own, for the moment.
func (k *lock) Close() error {
	k.logind.mu.Lock()
	defer k.logind.mu.Unlock()
	if k.logind.held != k {
		return nil
	}
	k.logind.held = nil
	return k.logind.letGo(k.file)
}

// Inhibit takes a delay lock on shutdown. Where this process holds one already,
// or the service manager kept one of an earlier process, and logind still
// honours it, that one is handed out again, and closers handed out before turn
// void; if the service manager did not take it, it is offered once more. So
// Inhibit may be called after every loss of logind or the bus, and there is one
// lock in the end. shutdown.ErrShutdownInProgress where logind refuses a new
// lock because the shutdown has begun.
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
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = &lock{logind: l, file: file}
	l.store()
	return l.held, nil
}

// store has the service manager keep the lock that is held, unless it does. One
// that it did not take is offered again by the next Inhibit. Called with mu held.
func (l *Logind) store() {
	if l.held.stored {
		return
	}
	err := l.unstore()
	if err == nil {
		err = l.options.Notifier.StoreFile(StoredLock, l.held.file)
	}
	switch {
	case err != nil && !l.unstored:
		l.log.Warn("the service manager does not keep the shutdown lock: a restart of this service would release it", "error", err)
	case err == nil && l.unstored:
		l.log.Info("the service manager keeps the shutdown lock again")
	}
	l.held.stored, l.unstored = err == nil, err != nil
}

// ReleaseAll gives up every lock of this service: the one held here and those
// that the service manager kept of an earlier process. It needs no bus.
func (l *Logind) ReleaseAll() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	files := l.kept
	if l.held != nil {
		files = append(files, l.held.file)
	}
	l.held, l.kept = nil, nil
	if len(files) == 0 && !l.stale {
		return nil
	}
	return l.letGo(files...)
}

// listed tells whether logind knows of any delay lock on shutdown in our name.
func (l *Logind) listed(locks []InhibitorLock) bool {
	for _, k := range locks {
		if k.Who == l.options.Who && k.Mode == "delay" && k.Inhibits("shutdown") {
			return true
		}
	}
	return false
}

// takeUp hands out the lock that is held or kept, if logind honours it, and
// lets go of all others. listed is logind's word, given after the bus was up,
// so a logind that was restarted has opened its end of the locks again.
func (l *Logind) takeUp(listed bool) *lock {
	l.mu.Lock()
	defer l.mu.Unlock()
	var candidates []*lock
	if l.held != nil {
		candidates = append(candidates, &lock{logind: l, file: l.held.file, stored: l.held.stored})
	}
	for _, file := range l.kept {
		candidates = append(candidates, &lock{logind: l, file: file, stored: true})
	}
	l.held, l.kept = nil, nil

	var good *lock
	var useless []*os.File
	for _, k := range candidates {
		if good == nil && listed && honoured(k.file) {
			good = k
		} else {
			useless = append(useless, k.file)
		}
	}
	if len(useless) > 0 {
		if err := l.letGo(useless...); err != nil {
			l.log.Warn("a useless shutdown lock stays behind", "error", err)
		}
		if good != nil {
			// The store knows names alone: what was dropped took the good one along.
			good.stored = false
		}
	}
	if good == nil {
		return nil
	}
	l.held = good
	l.store()
	return l.held
}

// letGo closes descriptors here and in the service manager's store. The store
// goes first, for it is slower, and what dies in between must not leave the
// lock with nobody. Where the service manager does not answer, it is asked again
// for some seconds by a goroutine: what it keeps delays the shutdown. Called
// with mu held, so that no new lock is stored between.
func (l *Logind) letGo(files ...*os.File) error {
	l.stale = true
	errs := []error{l.unstore()}
	if l.stale && !l.dropping {
		l.dropping = true
		go l.drop()
	}
	for _, file := range files {
		if err := file.Close(); err != nil {
			errs = append(errs, fmt.Errorf("close the shutdown lock: %w", err))
		}
	}
	return errors.Join(errs...)
}

// unstore has the service manager drop what it keeps, if that is out of date.
// Called with mu held.
func (l *Logind) unstore() error {
	if !l.stale {
		return nil
	}
	if err := l.options.Notifier.RemoveFiles(StoredLock); err != nil {
		return err
	}
	l.stale = false
	return nil
}

// drop tries unstore until it works, up to dropBound or Close.
func (l *Logind) drop() {
	end := time.Now().Add(dropBound)
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		select {
		case <-l.closing:
			return
		case <-time.After(pause):
		}
		if l.dropped(time.Now().After(end)) {
			return
		}
	}
}

// dropped makes one attempt, and tells whether no other one is to follow.
func (l *Logind) dropped(last bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.unstore()
	switch {
	case err == nil:
		l.log.Info("the service manager has dropped the shutdown lock")
		if l.held != nil {
			l.store() // it was not, as long as an old one was there
		}
	case last:
		l.log.Warn("the service manager keeps a shutdown lock that nobody needs: the shutdown waits for it as long as logind allows; a stop of this service ends that", "error", err)
	default:
		return false
	}
	l.dropping = false
	return true
}

// newLock asks logind. The call itself is not cancelled with ctx: an answer
// that came too late would carry a descriptor that nobody closes, and hold up
// the shutdown until this process ends.
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
// once: from here on no number is closed that somebody else has by then.
func lockFile(reply *dbus.Call) (*os.File, error) {
	var fd dbus.UnixFD
	if err := reply.Store(&fd); err != nil {
		return nil, err
	}
	unix.CloseOnExec(int(fd))
	return os.NewFile(uintptr(fd), StoredLock), nil
}

// honoured tells whether file is a lock that logind still waits for: the
// writing end of a fifo (/run/systemd/inhibit/N.ref) whose reading end is open.
// Poll reports an error on it when the last reader is gone.
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
