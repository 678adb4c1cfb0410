package local

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"hostler.io/hostler/internal/tree"
	"hostler.io/hostler/internal/trust"
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
	i := slices.IndexFunc(inodes, func(inode string) bool { return holds(root, initPID, inode) })
	if i < 0 {
		return nil
	}
	inode := inodes[i]
	if last := a.server.Load(); last != 0 && holds(root, last, inode) {
		return nil
	}
	hosts := pidNamespace(root, initPID)
	for name, err := range tree.Names(root) {
		if err != nil {
			return nil // unknown
		}
		if pid, err := strconv.ParseInt(name, 10, 64); err == nil && pid != initPID && mayServe(root, int(pid), hosts) && holds(root, pid, inode) {
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

// listeners returns the inodes of the sockets that listen at a path. It resolves no path to which
// others have bound a socket: any user can choose one on a file server that hangs.
func listeners(root, path string) (inodes []string) {
	list, err := listening(root)
	if err != nil {
		return nil
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		real = path
	}
	at, err := fileAt(real)
	there, device := err == nil, sync.OnceValue(func() uint32 { return mountedAt(real) })
	for _, l := range list {
		byFile := there && l.file.inode == at.inode && (l.file.device == at.device || l.file.device == device())
		if byFile || l.path == path || l.path == real {
			inodes = append(inodes, l.inode)
		}
	}
	return inodes
}

const (
	// initPID is the process ID of init, which may have many descriptors.
	initPID = 1
	// mostDescriptors is how many descriptors of another process are read, the lowest first. A service has its
	// sockets of systemd from descriptor 3 on (sd_listen_fds(3)), and copies them at its start.
	mostDescriptors = 64
)

// mayServe reports whether systemd can have passed a socket to a process: it is in a system service, and in no
// container. hosts is the PID namespace of init. Users and containers can have thousands of processes with a huge number
// of descriptors each.
func mayServe(root string, pid int, hosts string) bool {
	if trust.Service(root, pid) == "" {
		return false
	}
	theirs := pidNamespace(root, pid)
	return hosts == "" || theirs == "" || theirs == hosts
}

// pidNamespace returns the PID namespace of a process; empty if it cannot be read.
func pidNamespace(root string, pid int) string {
	namespace, _ := os.Readlink(filepath.Join(root, strconv.Itoa(pid), "ns/pid"))
	return namespace
}

// holds reports whether a process has the socket open.
func holds(root string, pid int64, inode string) bool {
	dir, err := tree.Open(filepath.Join(root, strconv.FormatInt(pid, 10), "fd"))
	if err != nil {
		return false // the process has ended
	}
	defer dir.Close()
	read := 0
	for name, err := range dir.Names() {
		if read++; err != nil || read > mostDescriptors && pid != initPID {
			break // the process has ended, or has more than a server
		}
		if target, err := dir.Readlink(name); err == nil && target == "socket:["+inode+"]" {
			return true
		}
	}
	return false
}
