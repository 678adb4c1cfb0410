package trust

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// root is the user ID of root.
const root = "0"

// Process is what /proc reports about one process.
type Process struct {
	PID  int
	Name string // of its program, or the name that it chose
	// User is its user ID, or all if they differ. It is empty for a process in another PID or user
	// namespace than PID 1.
	User string
	// Service is the system service in whose cgroup the process is, such as "kubelet.service", or
	// "".
	Service string
	// Nested is true if the process is in a cgroup below that of its service, like a process of a
	// container that the service runs.
	Nested bool
	// Contained is true if the process is in another PID namespace than PID 1, as in a container.
	Contained bool
	// Admin is true if the process has CAP_SYS_ADMIN on the host. Root's services have it by default,
	// containers only if they are privileged.
	Admin bool
	// Untrusted is why the process is not trusted, or "". A trusted process runs as root on the
	// host itself, not in a container or user session. Only root can change its program, and the
	// program gives other users no rights of root.
	Untrusted string
}

// IsRoots reports whether the process runs as root.
func (p Process) IsRoots() bool { return p.User == root }

func (p Process) String() string { return fmt.Sprintf("process %s, pid %d", p.Name, p.PID) }

// Inspect reads a process from proc, the mount point of the host's proc file system. It fails if
// the process does not exist, or if it executes another program meanwhile.
func Inspect(proc string, pid int) (Process, error) {
	folder, err := os.Open(filepath.Join(proc, strconv.Itoa(pid))) // it stays the folder of this process even if the PID is reused
	if err != nil {
		return Process{}, err
	}
	defer func() { _ = folder.Close() }() // opened only to read
	name, err := text(folder, "comm")
	if err != nil {
		return Process{}, err
	}
	cgroup, err := text(folder, "cgroup")
	if err != nil {
		return Process{}, err
	}
	status, where, err := statusOf(folder, proc)
	if err != nil {
		return Process{}, err
	}
	service, below := serviceIn(cgroup)
	p := Process{PID: pid, Name: strings.TrimSpace(name), Service: service, Nested: len(below) > 0, Contained: where.pid}
	if p.Untrusted = where.outside(); p.Untrusted == "" {
		p.User, p.Admin = user(status), isAdmin(status)
		if p.Untrusted, err = p.untrusted(folder, where, cgroup); err != nil {
			return Process{}, err
		}
	}
	again, err := text(folder, "comm")
	if err == nil && again != name {
		err = fmt.Errorf("process %d runs another program now", pid)
	}
	if err != nil {
		return Process{}, err
	}
	return p, nil
}

// place is what a process does not share with PID 1.
type place struct{ pid, user, mount, root bool }

// placeOf compares a process with PID 1. What it cannot read, which needs CAP_SYS_PTRACE, counts as
// shared. It fails if the process has ended: a process whose first thread has ended shows less, and
// could pose as one of the host.
func placeOf(folder *os.File, proc string) (p place, err error) {
	for kind, differs := range map[string]*bool{"pid": &p.pid, "user": &p.user, "mnt": &p.mount} {
		hosts, err := os.Readlink(filepath.Join(proc, "1/ns", kind))
		if err != nil {
			continue
		}
		theirs, err := link(folder, "ns/"+kind)
		if errors.Is(err, fs.ErrNotExist) {
			return p, err
		}
		*differs = err == nil && theirs != hosts
	}
	hosts, err := cached(unix.AT_FDCWD, filepath.Join(proc, "1/root"))
	if err != nil {
		return p, nil
	}
	theirs, err := cached(int(folder.Fd()), "root")
	if err == unix.ENOENT {
		return p, &fs.PathError{Op: "stat", Path: filepath.Join(folder.Name(), "root"), Err: err}
	}
	p.root = err == nil && (theirs.Dev_major != hosts.Dev_major || theirs.Dev_minor != hosts.Dev_minor || theirs.Ino != hosts.Ino)
	return p, nil
}

// outside returns why a process is not one of the host, or "". The status of another one is not read: with
// 65,536 groups, the kernel takes milliseconds for it, and a container may have thousands of such processes.
func (p place) outside() string {
	switch {
	case p.pid:
		return fmt.Sprintf(elsewhere, "PID")
	case p.user:
		return fmt.Sprintf(elsewhere, "user")
	}
	return ""
}

const elsewhere = "is not in the host's %s namespace, it may run in a container"

// statusOf reads the status of a process, and where the process is after that: it may have left the host's
// namespaces meanwhile, and cannot return. If it was outside before, the status is not read.
func statusOf(folder *os.File, proc string) (status string, where place, err error) {
	if where, err = placeOf(folder, proc); err != nil || where.outside() != "" {
		return "", where, err
	}
	if status, err = text(folder, "status"); err != nil {
		return "", where, err
	}
	where, err = placeOf(folder, proc)
	return status, where, err
}

// cached returns what the kernel knows about a file without a request to its file system, which
// another user may have chosen, and which may hang.
func cached(folder int, name string) (info unix.Statx_t, err error) {
	err = unix.Statx(folder, name, unix.AT_STATX_DONT_SYNC|unix.AT_NO_AUTOMOUNT, unix.STATX_BASIC_STATS, &info)
	return info, err
}

// untrusted returns why a process of the host is not trusted, or "".
func (p Process) untrusted(folder *os.File, where place, cgroup string) (why string, err error) {
	if !p.IsRoots() {
		return fmt.Sprintf("runs as user %s, not as root", p.User), nil
	}
	switch {
	case isUsers(cgroup):
		return "is in a user session or user service, not in a system service", nil
	// A service may have its own mounts (systemd.exec(5)). So may containers, below a service or
	// beside it.
	case where.mount && (p.Service == "" || p.Nested):
		return fmt.Sprintf(elsewhere, "mount"), nil
	// A container without a cgroup of its own is in that of a service. A snap also has another root
	// directory, but the capabilities of its service.
	case where.root && !p.Admin:
		return "has another root directory than the host, and no CAP_SYS_ADMIN, it may run in a container", nil
	}
	switch program, err := cached(int(folder.Fd()), "exe"); {
	case err == unix.ENOENT: // it has ended
		return "", &fs.PathError{Op: "stat", Path: filepath.Join(folder.Name(), "exe"), Err: err}
	case err == nil && !onlyRoots(program):
		return fmt.Sprintf("runs a program that users other than root can change or run as root (owner %d, mode %#o)", program.Uid, program.Mode&0o7777), nil
	}
	return "", nil
}

// IsOnHost reports whether root runs a process on the host itself, in whichever cgroup. The process
// shares the PID and user namespace of PID 1. It also has the root directory of PID 1, or
// CAP_SYS_ADMIN. The owner of the folder in /proc does not show the user: prctl(PR_SET_DUMPABLE) can
// make root the owner. A setuid program does not count: any user runs it, with any command line, and
// its four user IDs may be root's while it waits for a password, as those of sudo.
func IsOnHost(proc string, pid int) bool {
	folder, err := os.Open(filepath.Join(proc, strconv.Itoa(pid)))
	if err != nil {
		return false
	}
	defer func() { _ = folder.Close() }() // opened only to read
	status, where, err := statusOf(folder, proc)
	if err != nil || where.outside() != "" || user(status) != root || where.root && !isAdmin(status) {
		return false
	}
	program, err := cached(int(folder.Fd()), "exe") // after the status: it may have executed a setuid program meanwhile
	return err != nil || program.Mode&unix.S_ISUID == 0
}

// isAdmin reports whether the status of a process has CAP_SYS_ADMIN among its effective
// capabilities.
func isAdmin(status string) bool {
	for line := range strings.Lines(status) {
		if mask, found := strings.CutPrefix(line, "CapEff:"); found {
			all, err := strconv.ParseUint(strings.TrimSpace(mask), 16, 64)
			return err == nil && all&(1<<unix.CAP_SYS_ADMIN) != 0
		}
	}
	return false
}

// onlyRoots reports whether only root can change a program and run it as root.
func onlyRoots(program unix.Statx_t) bool {
	return program.Uid == 0 && program.Mode&(0o022|unix.S_ISUID|unix.S_ISGID) == 0
}

// user returns the user of a process from its status file: one ID if its four IDs (real, effective,
// saved, file system) are equal, else all of them.
func user(status string) string {
	for line := range strings.Lines(status) {
		if numbers, found := strings.CutPrefix(line, "Uid:"); found {
			return strings.Join(slices.Compact(strings.Fields(numbers)), " ")
		}
	}
	return "unknown"
}

// MayOpen reports whether the user and groups of a process permit it to write to a file, such as a
// socket.
func MayOpen(proc string, pid int, path string) bool {
	status, err := os.ReadFile(filepath.Join(proc, strconv.Itoa(pid), "status"))
	if err != nil {
		return false
	}
	var file unix.Stat_t
	if unix.Stat(path, &file) != nil {
		return false
	}
	groups := []string{}
	for line := range strings.Lines(string(status)) {
		for _, of := range []string{"Gid:", "Groups:"} {
			if numbers, found := strings.CutPrefix(line, of); found {
				groups = append(groups, strings.Fields(numbers)...)
			}
		}
	}
	who := user(string(status))
	switch {
	case who == root:
		return true
	case who == strconv.FormatUint(uint64(file.Uid), 10):
		return file.Mode&0o200 != 0
	case slices.Contains(groups, strconv.FormatUint(uint64(file.Gid), 10)):
		return file.Mode&0o020 != 0
	}
	return file.Mode&0o002 != 0
}

// ServiceNamePattern matches the names that systemd accepts for a service (systemd.unit(5)), except
// templates, which do not run.
const ServiceNamePattern = `^[A-Za-z0-9:_.\\-]+(@[A-Za-z0-9:_.\\@-]+)?\.service$`

var serviceName = regexp.MustCompile(ServiceNamePattern)

// IsServiceName reports whether a text, such as a container's label, can name a service.
func IsServiceName(text string) bool { return len(text) <= 255 && serviceName.MatchString(text) }

// Service returns the system service of a process, or "". Processes of containers, sessions and
// user services have none.
func Service(proc string, pid int) string {
	cgroup, err := os.ReadFile(filepath.Join(proc, strconv.Itoa(pid), "cgroup"))
	if err != nil {
		return ""
	}
	service, _ := serviceIn(string(cgroup))
	return service
}

// serviceIn is Service for the text of /proc/PID/cgroup. below is the rest of the cgroup path.
func serviceIn(text string) (service string, below []string) {
	for _, groups := range cgroups(text) {
		if service, below := serviceOf(groups); service != "" {
			return service, below
		}
	}
	return "", nil
}

// isUsers reports whether a process is in a scope, like sessions and containers, or below
// user.slice.
func isUsers(text string) bool {
	for _, groups := range cgroups(text) {
		if slices.ContainsFunc(groups, func(group string) bool { return group == "user.slice" || strings.HasSuffix(group, ".scope") }) {
			return true
		}
	}
	return false
}

// cgroups returns the elements of the paths in /proc/PID/cgroup that systemd manages.
func cgroups(text string) (list [][]string) {
	for line := range strings.Lines(text) {
		_, hierarchy, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, path, _ := strings.Cut(hierarchy, ":")
		if controllers == "" || controllers == "name=systemd" {
			list = append(list, strings.Split(strings.Trim(path, "/"), "/"))
		}
	}
	return list
}

// serviceOf returns the service in a cgroup path, if only slices are above it, and the rest of the
// path.
func serviceOf(groups []string) (service string, below []string) {
	for i, group := range groups {
		switch {
		case strings.HasSuffix(group, ".service") && !strings.HasPrefix(group, "user@"):
			return group, groups[i+1:]
		case !strings.HasSuffix(group, ".slice"):
			return "", nil
		}
	}
	return "", nil
}

// text reads a file of a process.
func text(folder *os.File, name string) (string, error) {
	fd, err := unix.Openat(int(folder.Fd()), name, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return "", &fs.PathError{Op: "open", Path: filepath.Join(folder.Name(), name), Err: err}
	}
	f := os.NewFile(uintptr(fd), filepath.Join(folder.Name(), name))
	buffer := make([]byte, 16<<10)
	n, err := f.Read(buffer)
	return string(buffer[:n]), closing(f, err)
}

// link reads a link of a process.
func link(folder *os.File, name string) (string, error) {
	buffer := make([]byte, 256)
	n, err := unix.Readlinkat(int(folder.Fd()), name, buffer)
	if err != nil {
		return "", &fs.PathError{Op: "readlink", Path: filepath.Join(folder.Name(), name), Err: err}
	}
	return string(buffer[:n]), nil
}
