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

// maxText bounds what is read of a process, and of the file with a container's ID.
const maxText = 64 << 10

// mostAsked bounds the processes of other users than root that mainOf is called with.
const mostAsked = 64

// Find returns the clients among the processes below procRoot, which is the proc file system. A
// process of a service counts if nobody but root decides what it is: it runs as root on the host, or
// it is the main process of the service, which mainOf returns. Another process of a service may be
// anybody's, such as a job of cron.service or what runs in a container. A client that does not run as
// root is not relied on to pass a signal on.
func Find(procRoot string, mainOf func(pid int) (service string)) ([]Client, error) {
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
		folder := filepath.Join(procRoot, name)
		command := read(filepath.Join(folder, "cmdline"))
		args := fields(command)
		if read, _ := split(args); read == nil {
			continue
		}
		inspected, err := trust.Inspect(procRoot, pid)
		if err != nil || inspected.Service == "" || inspected.Nested || inspected.Contained {
			continue
		}
		switch {
		case inspected.IsRoots() && inspected.Untrusted != "":
			continue
		case !inspected.IsRoots():
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

// Alive reports whether the client still is a process of its service: one that starts a container
// and leaves it, as `docker run --detach` does, soon is not.
func (c Client) Alive(procRoot string) bool {
	return c.Service != "" && read(filepath.Join(procRoot, strconv.Itoa(c.PID), "cmdline")) == c.command && trust.Service(procRoot, c.PID) == c.Service
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
