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

// Group may read the APIs.
const Group = "hostler"

// lookupGroup returns the ID of the group, and false where it does not exist.
func lookupGroup() (gid int, found bool) {
	g, err := user.LookupGroup(Group)
	if err != nil {
		return 0, false
	}
	gid, err = strconv.Atoi(g.Gid)
	return gid, err == nil
}

// listenHint ends an error of who may not open the socket.
const listenHint = "; run it as root, or set api.socket"

// Socket opens a unix socket: 0660 for group hostler where that group exists, else
// 0600. A socket that no process serves any more is replaced; one that is served
// is an error. Closing the listener removes the socket.
func Socket(path string) (net.Listener, error) {
	gid, found := lookupGroup()
	return SocketFor(path, gid, found)
}

// SocketFor opens a socket to the group of that ID, if there is one.
func SocketFor(path string, gid int, group bool) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("make folder of API socket: %w%s", err, listenHint)
	}
	if err := removeStale(path); err != nil {
		return nil, err
	}
	l, err := bind(path, gid, group)
	if err != nil {
		return nil, fmt.Errorf("listen on API socket: %w%s", err, listenHint)
	}
	mode := os.FileMode(0o600)
	if group {
		// Of who is no root, and not in the group, the socket stays closed.
		if of(path, gid) || os.Chown(path, -1, gid) == nil {
			mode = 0o660
		}
	}
	if err := os.Chmod(path, mode); err != nil {
		_ = l.Close()
		return nil, fmt.Errorf("set mode of API socket: %w", err)
	}
	return l, nil
}

// of reports whether a file has that group: a service whose group it is may not be allowed to call
// chown(2).
func of(path string, gid int) bool {
	var stat unix.Stat_t
	return unix.Stat(path, &stat) == nil && int(stat.Gid) == gid
}

// bind makes the socket, where it may, of the group from the first moment on: to give it
// one later takes CAP_CHOWN, which hostler.service does without.
func bind(path string, gid int, group bool) (l net.Listener, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		// The group that a thread makes files with is its own (setfsgid(2)). This one is
		// never unlocked, and ends with the goroutine.
		goruntime.LockOSThread()
		if group {
			_ = unix.Setfsgid(gid) // refusal is what Chown finds
		}
		l, err = net.Listen("unix", path)
	}()
	<-done
	return l, err
}

// removeStale removes a socket that nobody serves.
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
