package listen

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/user"
	"path/filepath"
	goruntime "runtime"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Group is the group whose members may read the APIs.
const Group = "hostler"

// lookupGroup returns the ID of Group, and false if the group does not exist.
func lookupGroup() (gid int, found bool) {
	g, err := user.LookupGroup(Group)
	if err != nil {
		return 0, false
	}
	gid, err = strconv.Atoi(g.Gid)
	return gid, err == nil
}

// listenHint ends an error about missing permission to create the socket.
const listenHint = "; run it as root, or set api.socket"

// Socket listens on a unix socket with mode 0660 and group hostler, or mode 0600 if that group does
// not exist. It replaces a socket that no process serves. If a process serves it, Socket returns an
// error. Closing the listener removes the socket.
func Socket(path string) (net.Listener, error) {
	gid, found := lookupGroup()
	return SocketFor(path, gid, found)
}

// SocketFor is Socket with the group's ID, and whether there is a group.
func SocketFor(path string, gid int, group bool) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("make folder of API socket: %w%s", err, listenHint)
	}
	if err := removeStale(path); err != nil {
		return nil, err
	}
	l, err := bind(path, gid, group)
	if err != nil {
		hint := listenHint
		if errors.Is(err, unix.EAFNOSUPPORT) { // a setting of the service
			hint = "; allow AF_UNIX in RestrictAddressFamilies= of the service"
		}
		return nil, fmt.Errorf("listen on API socket: %w%s", err, hint)
	}
	mode := os.FileMode(0o600)
	if group {
		// If the process may not give the socket to the group, the socket stays closed to the
		// group.
		if belongsTo(path, gid) || os.Chown(path, -1, gid) == nil {
			mode = 0o660
		}
	}
	if err := os.Chmod(path, mode); err != nil {
		_ = l.Close()
		return nil, fmt.Errorf("set mode of API socket: %w", err)
	}
	return l, nil
}

// belongsTo reports whether a file already belongs to the group. A service that runs with this
// group may be forbidden to call chown(2).
func belongsTo(path string, gid int) bool {
	var stat unix.Stat_t
	return unix.Stat(path, &stat) == nil && int(stat.Gid) == gid
}

// bind creates the socket with the group from the start, if that is permitted. Changing the group
// later needs CAP_CHOWN, which hostler.service does not have.
func bind(path string, gid int, group bool) (l net.Listener, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		// A thread creates files with its own group (setfsgid(2)). The thread is never unlocked, so
		// it ends with the goroutine.
		goruntime.LockOSThread()
		if group {
			_ = unix.Setfsgid(gid) // if this fails, Chown reports it
		}
		l, err = net.Listen("unix", path)
	}()
	<-done
	return l, err
}

// removeStale removes a socket that no process serves.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("check API socket: %w%s", err, listenHint)
	}
	if info.Mode().Type() != os.ModeSocket {
		return fmt.Errorf("%s is in the way and is no socket; move it, or set api.socket", path)
	}
	conn, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		_ = conn.Close()
		return fmt.Errorf("another process serves %s; one is enough for a host", path)
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("check API socket: %w%s", err, listenHint)
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("replace API socket: %w%s", err, listenHint)
	}
	return nil
}
