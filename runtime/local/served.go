package local

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"hostler.io/hostler/internal/tree"
	"hostler.io/hostler/runtime"
)

// Activation reports whether a service serves a socket, or only init listens on it. For a socket
// unit, such as docker.socket, systemd starts the service when a client connects
// (systemd.socket(5)). hostler must not start a service that somebody has stopped, or that nobody
// has needed yet. Activation is safe for concurrent use.
type Activation struct {
	ProcRoot string // the proc filesystem; "/proc" if empty
	Path     string // of the socket

	server atomic.Int64 // process that served it last
}

// Check returns nil if a connection starts no service, as far as that can be known, and
// runtime.ErrUnavailable if it would.
func (a *Activation) Check() error {
	root := cmp.Or(a.ProcRoot, hostProc)
	// A process in another mount namespace may have bound a socket to the same path. Only init's
	// counts.
	inodes := listeners(root, a.Path)
	i := slices.IndexFunc(inodes, func(inode string) bool { return holds(root, 1, inode) })
	if i < 0 {
		return nil
	}
	inode := inodes[i]
	if last := a.server.Load(); last != 0 && holds(root, last, inode) {
		return nil
	}
	for name, err := range tree.Names(root) {
		if err != nil {
			return nil // unknown
		}
		if pid, err := strconv.ParseInt(name, 10, 64); err == nil && pid != 1 && holds(root, pid, inode) {
			a.server.Store(pid)
			return nil
		}
	}
	return fmt.Errorf("%w: its service does not run; hostler does not connect to %s because systemd would then start the service", runtime.ErrUnavailable, a.Path)
}

// Served reports whether a process other than init listens on the socket. It does not connect.
func (a *Activation) Served() bool {
	root := cmp.Or(a.ProcRoot, hostProc)
	return len(listeners(root, a.Path)) > 0 && a.Check() == nil
}

// Listener identifies the sockets that listen at the path, including init's, without connecting. It
// returns "" if there are none, and another text each time the path is bound again, as in an
// upgrade.
func (a *Activation) Listener() string {
	return strings.Join(listeners(cmp.Or(a.ProcRoot, hostProc), a.Path), " ")
}

// listeners returns the inodes of the sockets that listen at a path.
func listeners(root, path string) (inodes []string) {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	list, err := listening(root)
	if err != nil {
		return nil
	}
	for _, l := range list {
		if sameSocket(l.path, path) {
			inodes = append(inodes, l.inode)
		}
	}
	return inodes
}

// sameSocket reports whether a socket was bound to the path, possibly by another name, such as
// below /var/run.
func sameSocket(bound, path string) bool {
	if bound == path {
		return true
	}
	// A socket cannot be bound to a name that is a link, so the base names must be equal. Other
	// paths are not resolved: they may be on a file server that hangs.
	if filepath.Base(bound) != filepath.Base(path) {
		return false
	}
	real, err := filepath.EvalSymlinks(bound)
	return err == nil && real == path
}

// holds reports whether a process has the socket open.
func holds(root string, pid int64, inode string) bool {
	dir, err := tree.Open(filepath.Join(root, strconv.FormatInt(pid, 10), "fd"))
	if err != nil {
		return false // the process has ended
	}
	defer dir.Close()
	for name, err := range dir.Names() {
		if err != nil {
			break // the process has ended
		}
		if target, err := dir.Readlink(name); err == nil && target == "socket:["+inode+"]" {
			return true
		}
	}
	return false
}
