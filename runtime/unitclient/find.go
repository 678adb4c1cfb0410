package unitclient

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"hostler.io/hostler/internal/bounded"
	"hostler.io/hostler/internal/tree"
	"hostler.io/hostler/internal/trust"
)

// maxText bounds how much is read of a process.
const maxText = 64 << 10

// mostAsked bounds the calls of mainOf.
const mostAsked = 64

// filesBound bounds all reads of files that the commands of clients name or search for.
const filesBound = 2 * time.Second

// Files reads files in the working directories of clients, whose file system may not answer. At most one read runs at
// a time, so that reads that hang do not add up. Safe for concurrent use.
type Files struct {
	free chan struct{} // holds one token while no read runs
}

// NewFiles returns a reader of files.
func NewFiles() *Files {
	f := &Files{free: make(chan struct{}, 1)}
	f.free <- struct{}{}
	return f
}

// fileReader is one of the functions of package trust that read a file.
type fileReader func(path string) ([]byte, error)

// read returns the content of a file, or "" if read refuses it or has not read it before ctx ends.
func (f *Files) read(ctx context.Context, path string, read fileReader) string {
	select {
	case <-f.free:
	case <-ctx.Done():
		return ""
	}
	text := ""
	if bounded.Call(ctx, func() error {
		defer func() { f.free <- struct{}{} }()
		content, err := read(path)
		text = string(content)
		return err
	}) != nil {
		return ""
	}
	return text
}

// Find returns the clients among the processes of the proc filesystem procRoot. It accepts only
// processes of services that only root controls. Such a process runs as root on the host, or may
// write to the socket of the runtime and is the main process of a service, which mainOf returns. Any
// user may control other processes of a service, such as jobs of cron.service or processes in a
// container. A client that does not run as root is not trusted to pass on signals.
func Find(ctx context.Context, files *Files, procRoot, socket string, mainOf func(pid int) (service string)) ([]Client, error) {
	ctx, cancel := context.WithTimeout(ctx, filesBound)
	defer cancel()
	s := search{procRoot: procRoot, read: func(path string, by fileReader) string { return files.read(ctx, path, by) }, socket: socket, mainOf: mainOf}
	var pids []int
	for name, err := range tree.Names(procRoot) {
		if err != nil {
			return nil, err
		}
		if pid, err := strconv.Atoi(name); err == nil {
			pids = append(pids, pid)
		}
	}
	return s.among(pids), nil
}

// Among returns the clients among these processes, as Find does. It accepts only processes of root, and reads no
// files that their commands name.
func Among(procRoot string, pids []int) []Client {
	s := search{procRoot: procRoot, read: func(string, fileReader) string { return "" }}
	return s.among(pids)
}

type search struct {
	procRoot, socket string                                  // socket is empty if only processes of root are accepted
	read             func(path string, by fileReader) string // of a file that a command names
	mainOf           func(pid int) (service string)
	asked            int // calls of mainOf
}

func (s *search) among(pids []int) (clients []Client) {
	for _, pid := range pids {
		if client, ok := s.client(pid); ok {
			clients = append(clients, client)
		}
	}
	return clients
}

func (s *search) client(pid int) (client Client, ok bool) {
	if trust.Service(s.procRoot, pid) == "" { // most processes: their inspection would take several times as long
		return client, false
	}
	inspected, err := trust.Inspect(s.procRoot, pid)
	if err != nil || inspected.Service == "" || inspected.Nested || inspected.User == "" {
		return client, false
	}
	if inspected.IsRoots() && inspected.Untrusted != "" || !inspected.IsRoots() && (s.socket == "" || !trust.MayOpen(s.procRoot, pid, s.socket)) {
		return client, false
	}
	// The kernel reads the command line from the memory of the process, which another user could
	// have mapped from a file system that never answers (proc_pid_cmdline(5)).
	folder := filepath.Join(s.procRoot, strconv.Itoa(pid))
	command := read(filepath.Join(folder, "cmdline"))
	args := fields(command)
	if read, _ := split(args); read == nil {
		return client, false
	}
	if !inspected.IsRoots() {
		if s.asked++; s.asked > mostAsked || s.mainOf(pid) != inspected.Service {
			return client, false
		}
	}
	dir, _ := os.Readlink(filepath.Join(folder, "cwd"))
	client, ok = parse(process{
		args: args, dir: dir, read: s.read,
		env: func(name string) string { return variable(fields(read(filepath.Join(folder, "environ"))), name) },
	})
	client.PID, client.Service, client.command = pid, inspected.Service, command
	client.PassesOn = client.PassesOn && inspected.IsRoots()
	return client, ok
}

// Alive reports whether the client is still a process of its service. A client that only starts a
// container, such as `docker run --detach`, soon ends.
func (c Client) Alive(procRoot string) bool {
	return c.Service != "" && trust.Service(procRoot, c.PID) == c.Service && read(filepath.Join(procRoot, strconv.Itoa(c.PID), "cmdline")) == c.command
}

// read returns the beginning of a file of a process, or "" if it does not exist.
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
