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

// Activation reports whether a socket is served by whom it is meant for, or whether init
// alone listens at it: systemd starts the service of a socket unit, such as docker.socket,
// for whoever connects (systemd.socket(5)), and a service that a person has stopped, or
// that nobody has needed yet, is not hostler's to start. It is safe for concurrent use.
type Activation struct {
	ProcRoot string // the proc filesystem; "/proc" if empty
	Path     string // of the socket

	server atomic.Int64 // who served last
}

// Check returns nil if a connection starts nobody, as far as that can be told, and
// runtime.ErrUnavailable if it would.
func (a *Activation) Check() error {
	root := cmp.Or(a.ProcRoot, hostProc)
	// A process with mounts of its own may have bound a socket to the same path: init's counts.
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
			return nil // it is unknown who listens
		}
		if pid, err := strconv.ParseInt(name, 10, 64); err == nil && pid != 1 && holds(root, pid, inode) {
			a.server.Store(pid)
			return nil
		}
	}
	return fmt.Errorf("%w: its service does not run; hostler does not connect to %s because systemd would then start the service", runtime.ErrUnavailable, a.Path)
}

// Served reports whether somebody listens at the socket who is not init, without asking it.
func (a *Activation) Served() bool {
	root := cmp.Or(a.ProcRoot, hostProc)
	return len(listeners(root, a.Path)) > 0 && a.Check() == nil
}

// Listener reports who listens at the socket, init included, without asking: empty if nobody
// does, and another text each time that it is bound again, as by an upgrade.
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

// sameSocket compares the path that a socket was bound to, which may have been written
// by way of /var/run.
func sameSocket(bound, path string) bool {
	if bound == path {
		return true
	}
	// A name that is a link cannot be bound to. Others are not even looked up: they may
	// be on a file server that hangs.
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
		return false // it is gone
	}
	defer dir.Close()
	for name, err := range dir.Names() {
		if err != nil {
			break // likewise
		}
		if target, err := dir.Readlink(name); err == nil && target == "socket:["+inode+"]" {
			return true
		}
	}
	return false
}
