package unitclient

import (
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// maxText bounds what is read of a process, and of the file with a container's ID.
const maxText = 64 << 10

// Find returns the clients among the processes below procRoot, which is the proc file system. A
// process counts if nobody but root decides what it is: it runs as root, or its program is a file
// of root's that nobody else can write.
func Find(procRoot string) ([]Client, error) {
	entries, err := os.ReadDir(procRoot)
	if err != nil {
		return nil, err
	}
	var clients []Client
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		folder := filepath.Join(procRoot, entry.Name())
		command := read(filepath.Join(folder, "cmdline"))
		args := fields(command)
		if read, _ := split(args); read == nil {
			continue
		}
		service := Service(procRoot, pid)
		if service == "" || !trusted(folder) {
			continue
		}
		dir, _ := os.Readlink(filepath.Join(folder, "cwd"))
		client, ok := parse(process{
			args: args, dir: dir, read: read,
			env: func(name string) string { return variable(fields(read(filepath.Join(folder, "environ"))), name) },
		})
		if ok {
			client.PID, client.Service, client.command = pid, service, command
			clients = append(clients, client)
		}
	}
	return clients, nil
}

// Alive reports whether the client still is a process of its service: one that starts a container
// and leaves it, as `docker run --detach` does, soon is not.
func (c Client) Alive(procRoot string) bool {
	return c.Service != "" && read(filepath.Join(procRoot, strconv.Itoa(c.PID), "cmdline")) == c.command && Service(procRoot, c.PID) == c.Service
}

// Service names the service of the host's systemd that a process belongs to; empty if it is of
// none, as what runs in a container, or is a service of a user's.
func Service(procRoot string, pid int) string {
	return serviceIn(read(filepath.Join(procRoot, strconv.Itoa(pid), "cgroup")))
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

// trusted reports whether root alone decides what a process is.
func trusted(folder string) bool {
	info, err := os.Stat(folder)
	if err != nil {
		return false
	}
	program, err := os.Stat(filepath.Join(folder, "exe"))
	if err != nil {
		return owner(info) == 0
	}
	return isRoots(owner(info), owner(program), program.Mode())
}

// isRoots reports whether root alone decides what a process of a user is, whose program is a file
// of that owner and mode.
func isRoots(user, programOwner uint32, mode os.FileMode) bool {
	return user == 0 || programOwner == 0 && mode.Perm()&0o022 == 0
}

func owner(info os.FileInfo) uint32 {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return stat.Uid
	}
	return ^uint32(0)
}

// read is the beginning of a file's text; empty if there is none.
func read(path string) string {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return ""
	}
	defer f.Close()
	text, _ := io.ReadAll(io.LimitReader(f, maxText))
	return string(text)
}

// fields are the texts that a zero byte ends each.
func fields(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(text, "\x00"), "\x00")
}

// variable is the value of one in an environment; empty if there is none.
func variable(environment []string, name string) string {
	for _, v := range environment {
		if key, value, _ := strings.Cut(v, "="); key == name {
			return value
		}
	}
	return ""
}
