package trust

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Process is what the kernel says of a process, all of the same one.
type Process struct {
	PID  int
	Name string // of its program, or what it calls itself
	// Service is the system service whose cgroup it is in, such as "kubelet.service"; empty if it is
	// in none, as what runs in a container or in somebody's session.
	Service string
	// Contained says that it is in other namespaces than the host's, as in a container.
	Contained bool
	// Distrust says why its word does not count on this host; empty if it does. It counts of a
	// process of root's, in a system service, in the host's own namespaces, whose program nobody else
	// can change.
	Distrust string
}

func (p Process) String() string { return fmt.Sprintf("process %s, pid %d", p.Name, p.PID) }

// Trusted returns an *Error if the word of the process does not count.
func (p Process) Trusted() error {
	if p.Distrust == "" {
		return nil
	}
	return &Error{Subject: p.String(), Why: p.Distrust}
}

// namespaces are those that a process on the host shares with PID 1.
var namespaces = []string{"pid", "mnt", "user"}

// LookAt looks at a process below proc, the proc file system of the host. It fails if there is none.
func LookAt(proc string, pid int) (Process, error) {
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
	p := Process{PID: pid, Name: strings.TrimSpace(name), Service: serviceIn(cgroup)}
	p.Contained, p.Distrust = distrust(folder, proc, p.Service)
	if _, err := text(folder, "comm"); err != nil { // it has ended: what was read of it may be incomplete
		return Process{}, err
	}
	return p, nil
}

// distrust says why the word of a process does not count, and whether that is for its namespaces.
func distrust(folder *os.File, proc, service string) (contained bool, why string) {
	for _, kind := range namespaces {
		theirs, err := link(folder, "ns/"+kind)
		hosts, hostErr := os.Readlink(filepath.Join(proc, "1/ns", kind))
		switch {
		case err != nil || hostErr != nil:
			return false, fmt.Sprintf("cannot be looked at: %v", errors.Join(err, hostErr))
		case theirs != hosts:
			return true, "is in another " + kind + " namespace than the host's, as in a container"
		}
	}
	return false, distrustOnHost(folder, service)
}

// distrustOnHost is distrust of a process in the host's own namespaces.
func distrustOnHost(folder *os.File, service string) string {
	status, err := text(folder, "status")
	if err != nil {
		return fmt.Sprintf("cannot be looked at: %v", err)
	}
	if user := user(status); user != "0" {
		return fmt.Sprintf("runs as user %s, and not as root", user)
	}
	if service == "" {
		return "is in no system service"
	}
	var program unix.Stat_t
	if err := unix.Fstatat(int(folder.Fd()), "exe", &program, 0); err != nil {
		return "cannot be looked at: " + err.Error()
	}
	if !onlyRoots(program) {
		return fmt.Sprintf("runs a program that others than root can change (owner %d, mode %#o)", program.Uid, program.Mode&0o7777)
	}
	return ""
}

// onlyRoots reports whether nobody but root can change a file.
func onlyRoots(file unix.Stat_t) bool { return file.Uid == 0 && file.Mode&0o022 == 0 }

// user is as whom a process runs by its status file: the one number of its real, effective, saved
// and file system user, or all of them.
func user(status string) string {
	for line := range strings.Lines(status) {
		if numbers, found := strings.CutPrefix(line, "Uid:"); found {
			return strings.Join(slices.Compact(strings.Fields(numbers)), " ")
		}
	}
	return "unknown"
}

// RunsAsItsProgram reports whether nobody but root decides what a process does: it runs as root, or
// its program is a file of root's that nobody else can change. Such a process may run as anybody.
func RunsAsItsProgram(proc string, pid int) bool {
	folder, err := os.Open(filepath.Join(proc, strconv.Itoa(pid)))
	if err != nil {
		return false
	}
	defer func() { _ = folder.Close() }() // only read
	var process, program unix.Stat_t
	if unix.Fstat(int(folder.Fd()), &process) == nil && process.Uid == 0 {
		return true
	}
	return unix.Fstatat(int(folder.Fd()), "exe", &program, 0) == nil && onlyRoots(program)
}

// Service names the system service that a process belongs to; empty if it is of none, as what runs
// in a container or a session, or is a service of a user's.
func Service(proc string, pid int) string {
	cgroup, err := os.ReadFile(filepath.Join(proc, strconv.Itoa(pid), "cgroup"))
	if err != nil {
		return ""
	}
	return serviceIn(string(cgroup))
}

// serviceIn is Service by the text of /proc/PID/cgroup.
func serviceIn(text string) string {
	for line := range strings.Lines(text) {
		_, hierarchy, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, path, _ := strings.Cut(hierarchy, ":")
		if controllers != "" && controllers != "name=systemd" {
			continue
		}
		if service := serviceOf(path); service != "" {
			return service
		}
	}
	return ""
}

// serviceOf is the service in the path of a cgroup that only slices enclose.
func serviceOf(path string) string {
	for group := range strings.SplitSeq(strings.Trim(path, "/"), "/") {
		switch {
		case strings.HasSuffix(group, ".service") && !strings.HasPrefix(group, "user@"):
			return group
		case !strings.HasSuffix(group, ".slice"):
			return ""
		}
	}
	return ""
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
