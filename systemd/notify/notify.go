// Package notify sends sd_notify(3) messages to systemd and handles the descriptors that systemd
// stores for this service. It owns the messages; its callers decide when to send them.
package notify

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// notifyTimeout bounds sending to a service manager that does not read.
const notifyTimeout = 500 * time.Millisecond

// Notifier reports the state of this service to systemd, over the socket of sd_notify(3), and makes
// systemd store descriptors. Without a service manager, as in the zero value, it does nothing. It
// is safe for concurrent use.
type Notifier struct {
	socket   string
	watchdog time.Duration
}

// New reads NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID with getenv, and removes them with
// unsetenv, so that child processes do not send messages for this service. With os.Getenv and
// os.Unsetenv, call it before goroutines that read the environment are started.
func New(getenv func(string) string, unsetenv func(string) error) *Notifier {
	n := &Notifier{socket: getenv("NOTIFY_SOCKET")}
	pid := getenv("WATCHDOG_PID")
	if usec, err := strconv.ParseUint(getenv("WATCHDOG_USEC"), 10, 64); err == nil && (pid == "" || pid == strconv.Itoa(os.Getpid())) {
		n.watchdog = time.Duration(min(usec, math.MaxInt64/uint64(time.Microsecond))) * time.Microsecond
	}
	for _, name := range []string{"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"} {
		_ = unsetenv(name) // fails only for malformed names
	}
	return n
}

// WatchdogInterval returns how long systemd waits for Watchdog until this service counts as hung,
// or 0 for forever. Call Watchdog at half of that interval.
func (n *Notifier) WatchdogInterval() time.Duration { return n.watchdog }

// Ready reports that the service has started, or that a reload has ended.
func (n *Notifier) Ready() error { return n.send("READY=1", nil) }

// Reloading reports that a reload has begun; Ready ends it. It includes the time that
// Type=notify-reload needs.
func (n *Notifier) Reloading() error {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return fmt.Errorf("notify systemd: read the monotonic clock: %w", err)
	}
	return n.send(fmt.Sprintf("RELOADING=1\nMONOTONIC_USEC=%d", now.Nano()/int64(time.Microsecond)), nil)
}

// Stopping reports that the service is stopping.
func (n *Notifier) Stopping() error { return n.send("STOPPING=1", nil) }

// Status sets the line that systemctl status shows.
func (n *Notifier) Status(line string) error {
	return n.send("STATUS="+strings.ReplaceAll(line, "\n", " "), nil)
}

// ExtendTimeout requests d more from now on, until the start or stop in progress times out.
func (n *Notifier) ExtendTimeout(d time.Duration) error {
	return n.send(fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", d.Microseconds()), nil)
}

// Watchdog reports that the service is alive.
func (n *Notifier) Watchdog() error { return n.send("WATCHDOG=1", nil) }

// StoreFile makes systemd store a duplicate of file under name and pass it to the next process of
// this service (see PassedFiles). It sets FDPOLL=0, because otherwise the manager would drop a lock
// at the moment when logind restarts.
func (n *Notifier) StoreFile(name string, file *os.File) error {
	return n.send("FDSTORE=1\nFDNAME="+name+"\nFDPOLL=0", file)
}

// RemoveFiles makes systemd close all descriptors that it stores under name.
func (n *Notifier) RemoveFiles(name string) error {
	return n.send("FDSTOREREMOVE=1\nFDNAME="+name, nil)
}

// send sends one datagram. It opens the socket each time, because messages are rare.
func (n *Notifier) send(state string, file *os.File) error {
	if n.socket == "" {
		return nil
	}
	what, _, _ := strings.Cut(state, "\n")
	if err := n.write(state, file); err != nil {
		return fmt.Errorf("notify systemd of %s: %w", what, err)
	}
	return nil
}

func (n *Notifier) write(state string, file *os.File) error {
	// In package net, a leading @ means the abstract namespace, as in sd_notify.
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: n.socket, Net: "unixgram"})
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetWriteDeadline(time.Now().Add(notifyTimeout)); err != nil {
		return err
	}
	if file == nil {
		_, err = conn.Write([]byte(state))
		return err
	}
	raw, err := file.SyscallConn()
	if err != nil {
		return err
	}
	var sent error
	err = raw.Control(func(fd uintptr) { sent = sendRights(conn, state, int(fd)) })
	return cmp.Or(err, sent)
}

// sendRights is WriteMsgUnix, which package net does not allow for connected datagram sockets.
func sendRights(conn *net.UnixConn, state string, fd int) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var sent error
	err = raw.Write(func(socket uintptr) (done bool) {
		sent = unix.Sendmsg(int(socket), []byte(state), unix.UnixRights(fd), nil, unix.MSG_NOSIGNAL)
		return sent != unix.EAGAIN
	})
	return cmp.Or(err, sent)
}

// PassedFiles returns the descriptors that systemd passed to this process (sd_listen_fds(3)): those
// in the store, each as a file with its name in the store. Like New, it removes the variables, so a
// second call returns none.
func PassedFiles(getenv func(string) string, unsetenv func(string) error) ([]*os.File, error) {
	const first = 3 // SD_LISTEN_FDS_START
	pid, count := getenv("LISTEN_PID"), getenv("LISTEN_FDS")
	names := strings.Split(getenv("LISTEN_FDNAMES"), ":")
	for _, name := range []string{"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "LISTEN_PIDFDID"} {
		_ = unsetenv(name) // fails only for malformed names
	}
	if count == "" || pid != strconv.Itoa(os.Getpid()) {
		return nil, nil
	}
	n, err := strconv.ParseUint(count, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("read LISTEN_FDS: %w", err)
	}
	var files []*os.File
	var errs []error
	for i := range int(n) {
		fd := first + i
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, unix.FD_CLOEXEC); err != nil {
			errs = append(errs, fmt.Errorf("take over passed descriptor %d: %w", fd, err))
			continue
		}
		name := ""
		if i < len(names) {
			name = names[i]
		}
		files = append(files, os.NewFile(uintptr(fd), name))
	}
	return files, errors.Join(errs...)
}
