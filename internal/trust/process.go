package trust

import (
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

// root is the number of the user root.
const root = "0"

// Process is what the kernel says of a process, all of the same one.
type Process struct {
	PID  int
	Name string // of its program, or what it calls itself
	User string // its number, or several if its user IDs differ
	// Service is the system service whose cgroup it is in, such as "kubelet.service"; empty if it is
	// in none.
	Service string
	// Nested reports that it is in a cgroup below that of its service, like a process of a
	// container that the service runs.
	Nested bool
	// Contained says that it is in another PID namespace than the host's, as in a container.
	Contained bool
	// Untrusted returns why a process is not trusted on this host; empty if it is trusted. A
	// trusted process runs as root on the host itself, not in a container or user session. Only
	// root can change its program, and the program gives other users no rights of root.
	Untrusted string
}

// IsRoots reports whether a process runs as root.
func (p Process) IsRoots() bool { return p.User == root }

func (p Process) String() string { return fmt.Sprintf("process %s, pid %d", p.Name, p.PID) }

// Inspect reads what the kernel says of a process below proc, the proc file system of the host. It
// fails if there is none, or if it becomes another program meanwhile.
func Inspect(proc string, pid int) (Process, error) {
	folder, err := os.Open(filepath.Join(proc, strconv.Itoa(pid))) // which stays that of this process
	if err != nil {
		return Process{}, err
	}
	defer func() { _ = folder.Close() }() // only read
	name, err := text(folder, "comm")
	if err != nil {
		return Process{}, err
	}
	cgroup, err := text(folder, "cgroup")
	if err != nil {
		return Process{}, err
	}
	status, err := text(folder, "status")
	if err != nil {
		return Process{}, err
	}
	service, below := serviceIn(cgroup)
	p := Process{
		PID: pid, Name: strings.TrimSpace(name), User: user(status), Service: service,
		Nested: len(below) > 0, Contained: isElsewhere(folder, proc, "pid"),
	}
	p.Untrusted = p.untrusted(folder, proc, cgroup)
	again, err := text(folder, "comm")
	if err == nil && again != name {
		err = fmt.Errorf("process %d runs another program now", pid)
	}
	if err != nil {
		return Process{}, err
	}
	return p, nil
}

// isElsewhere reports whether a process is in another namespace of a kind than PID 1. Where that
// cannot be read, which takes CAP_SYS_PTRACE, it is not.
func isElsewhere(folder *os.File, proc, kind string) bool {
	theirs, err := link(folder, "ns/"+kind)
	hosts, hostErr := os.Readlink(filepath.Join(proc, "1/ns", kind))
	return err == nil && hostErr == nil && theirs != hosts
}

// untrusted returns why a process is not trusted, if all facts are known.
func (p Process) untrusted(folder *os.File, proc, cgroup string) string {
	if !p.IsRoots() {
		return fmt.Sprintf("runs as user %s, not as root", p.User)
	}
	const elsewhere = "is not in the host's %s namespace, it may run in a container"
	switch {
	case p.Contained:
		return fmt.Sprintf(elsewhere, "PID")
	case isElsewhere(folder, proc, "user"):
		return fmt.Sprintf(elsewhere, "user")
	case isUsers(cgroup):
		return "is in a user session or user service, not in a system service"
	// A service may have mounts of its own (systemd.exec(5)); so have containers, below a service or
	// beside it.
	case isElsewhere(folder, proc, "mnt") && (p.Service == "" || p.Nested):
		return fmt.Sprintf(elsewhere, "mount")
	}
	var program unix.Stat_t
	if unix.Fstatat(int(folder.Fd()), "exe", &program, 0) == nil && !onlyRoots(program) {
		return fmt.Sprintf("runs a program that users other than root can change or run as root (owner %d, mode %#o)", program.Uid, program.Mode&0o7777)
	}
	return ""
}

// onlyRoots reports whether nobody but root can change a program, or have it run as root.
func onlyRoots(program unix.Stat_t) bool {
	return program.Uid == 0 && program.Mode&(0o022|unix.S_ISUID|unix.S_ISGID) == 0
}

// user is the user of a process by its status file: the one number of its real, effective, saved and
// file system user, or all of them.
func user(status string) string {
	for line := range strings.Lines(status) {
		if numbers, found := strings.CutPrefix(line, "Uid:"); found {
			return strings.Join(slices.Compact(strings.Fields(numbers)), " ")
		}
	}
	return "unknown"
}

// RunsAsRoot reports whether a process runs as root. The owner of its folder in proc does not show
// that: any process can make root the owner, by prctl(PR_SET_DUMPABLE).
func RunsAsRoot(proc string, pid int) bool {
	status, err := os.ReadFile(filepath.Join(proc, strconv.Itoa(pid), "status"))
	return err == nil && user(string(status)) == root
}

// MayOpen reports whether a process may write to a file, such as a socket, by its user and groups.
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

// ServiceNamePattern is what systemd takes for the name of a service (systemd.unit(5)), except a
// template, which does not run.
const ServiceNamePattern = `^[A-Za-z0-9:_.\\-]+(@[A-Za-z0-9:_.\\@-]+)?\.service$`

var serviceName = regexp.MustCompile(ServiceNamePattern)

// IsServiceName reports whether a text, such as a container's label, can name a service.
func IsServiceName(text string) bool { return len(text) <= 255 && serviceName.MatchString(text) }

// Service names the system service that a process belongs to; empty if it is of none, as what runs
// in a container or a session, or is a service of a user's.
func Service(proc string, pid int) string {
	cgroup, err := os.ReadFile(filepath.Join(proc, strconv.Itoa(pid), "cgroup"))
	if err != nil {
		return ""
	}
	service, _ := serviceIn(string(cgroup))
	return service
}

// serviceIn is Service by the text of /proc/PID/cgroup, and what is below that in its cgroup.
func serviceIn(text string) (service string, below []string) {
	for _, groups := range cgroups(text) {
		if service, below := serviceOf(groups); service != "" {
			return service, below
		}
	}
	return "", nil
}

// isUsers reports whether a process is in a scope, as sessions and containers are, or below
// user.slice.
func isUsers(text string) bool {
	for _, groups := range cgroups(text) {
		if slices.ContainsFunc(groups, func(group string) bool { return group == "user.slice" || strings.HasSuffix(group, ".scope") }) {
			return true
		}
	}
	return false
}

// cgroups are the paths in the text of /proc/PID/cgroup that systemd makes, by their names.
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

// serviceOf is the service in the path of a cgroup that only slices enclose, and what is below it.
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
