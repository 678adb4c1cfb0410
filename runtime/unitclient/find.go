package unitclient

import (
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"hostler.io/hostler/internal/tree"
	"hostler.io/hostler/internal/trust"
)

// maxText bounds how much is read of a process, and of the file with a container's ID.
const maxText = 64 << 10

// mostAsked bounds the calls of mainOf.
const mostAsked = 64

// Find returns the clients among the processes of the proc filesystem procRoot. It accepts only
// processes of services that only root controls. Such a process runs as root on the host, or may
// write to the socket of the runtime and is the main process of a service, which mainOf returns. If
// socket is empty, it runs as root. Any user may control other processes of a service, such as jobs
// of cron.service or processes in a container. A client that does not run as root is not trusted to
// pass on signals.
func Find(procRoot, socket string, mainOf func(pid int) (service string)) ([]Client, error) {
	asked := 0
	var clients []Client
	for name, err := range tree.Names(procRoot) {
		if err != nil {
			return nil, err
		}
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		inspected, err := trust.Inspect(procRoot, pid)
		if err != nil || inspected.Service == "" || inspected.Nested || inspected.Contained {
			continue
		}
		if inspected.IsRoots() && inspected.Untrusted != "" || !inspected.IsRoots() && (socket == "" || !trust.MayOpen(procRoot, pid, socket)) {
			continue
		}
		// The kernel reads the command line from the memory of the process, which another user could
		// have mapped from a file system that never answers (proc_pid_cmdline(5)).
		folder := filepath.Join(procRoot, name)
		command := read(filepath.Join(folder, "cmdline"))
		args := fields(command)
		if read, _ := split(args); read == nil {
			continue
		}
		if !inspected.IsRoots() {
			if asked++; asked > mostAsked || mainOf(pid) != inspected.Service {
				continue
			}
		}
		dir, _ := os.Readlink(filepath.Join(folder, "cwd"))
		client, ok := parse(process{
			args: args, dir: dir, read: read,
			env: func(name string) string { return variable(fields(read(filepath.Join(folder, "environ"))), name) },
		})
		if ok {
			client.PID, client.Service, client.command = pid, inspected.Service, command
			client.PassesOn = client.PassesOn && inspected.IsRoots()
			clients = append(clients, client)
		}
	}
	return clients, nil
}

// Alive reports whether the client is still a process of its service. A client that only starts a
// container, such as `docker run --detach`, soon ends.
func (c Client) Alive(procRoot string) bool {
	return c.Service != "" && trust.Service(procRoot, c.PID) == c.Service && read(filepath.Join(procRoot, strconv.Itoa(c.PID), "cmdline")) == c.command
}

// read returns the beginning of a file, or "" if it does not exist.
func read(path string) string {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return ""
	}
	defer f.Close()
	text, _ := io.ReadAll(io.LimitReader(f, maxText))
	return string(text)
}

// fields splits a text at zero bytes.
func fields(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(text, "\x00"), "\x00")
}

// variable returns the value of a variable in an environment, or "".
func variable(environment []string, name string) string {
	for _, v := range environment {
		if key, value, _ := strings.Cut(v, "="); key == name {
			return value
		}
	}
	return ""
}
