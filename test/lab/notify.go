package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Notification is one message of a service to its manager; see sd_notify(3).
type Notification struct {
	Time   time.Time
	Fields map[string]string // such as READY=1
	Files  int               // number of descriptors in the message
}

// Notify receives the notifications of a service and stores its descriptors, as systemd does for a
// service with FileDescriptorStoreMax=. Its methods are safe for concurrent use.
type Notify struct {
	Socket string // value of NOTIFY_SOCKET
	conn   *net.UnixConn
	ended  chan struct{}

	mu     sync.Mutex
	seen   []Notification
	stored []storedFile
	max    int
}

type storedFile struct {
	name   string
	file   *os.File
	polled bool // removed when the other end hangs up, unless it was sent with FDPOLL=0
}

// StartNotify listens for notifications and stores up to maxFiles descriptors.
func StartNotify(maxFiles int) (*Notify, error) {
	parent := os.TempDir()
	if os.Getenv(stageVariable) == stageInside {
		parent = Dir // removed with the lab
	}
	dir, err := os.MkdirTemp(parent, "hostler-notify-")
	if err != nil {
		return nil, err
	}
	n := &Notify{Socket: filepath.Join(dir, "notify"), max: maxFiles, ended: make(chan struct{})}
	n.conn, err = net.ListenUnixgram("unixgram", &net.UnixAddr{Name: n.Socket, Net: "unixgram"})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listen for notifications: %w", err), os.RemoveAll(dir))
	}
	go n.receive()
	return n, nil
}

// receive records messages until the socket is closed.
func (n *Notify) receive() {
	defer close(n.ended)
	text, control := make([]byte, 64<<10), make([]byte, 4<<10)
	for {
		size, oobSize, _, _, err := n.conn.ReadMsgUnix(text, control)
		if err != nil {
			return
		}
		n.record(string(text[:size]), descriptors(control[:oobSize]))
	}
}

// descriptors returns the descriptors of a control message.
func descriptors(control []byte) []*os.File {
	var files []*os.File
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return nil
	}
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			continue
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			files = append(files, os.NewFile(uintptr(fd), "stored"))
		}
	}
	return files
}

func (n *Notify) record(text string, files []*os.File) {
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		if key, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "="); ok {
			fields[key] = value
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.seen = append(n.seen, Notification{Time: time.Now(), Fields: fields, Files: len(files)})
	name := fields["FDNAME"]
	if name == "" {
		name = "stored"
	}
	switch {
	case fields["FDSTORE"] == "1":
		for _, file := range files {
			// systemd stores a descriptor only once, and none beyond the limit.
			known := slices.ContainsFunc(n.stored, func(s storedFile) bool { return sameDescription(s.file, file) })
			if known || len(n.stored) >= n.max {
				_ = file.Close()
				continue
			}
			n.stored = append(n.stored, storedFile{name, file, fields["FDPOLL"] != "0"})
		}
		return
	case fields["FDSTOREREMOVE"] == "1":
		n.stored = slices.DeleteFunc(n.stored, func(s storedFile) bool {
			if s.name == name {
				_ = s.file.Close()
			}
			return s.name == name
		})
	case fields["BARRIER"] == "1":
		// The sender waits until the descriptor is closed.
	}
	for _, file := range files {
		_ = file.Close()
	}
}

// sameDescription reports whether two descriptors refer to one open file, as systemd does with
// kcmp(2). The two ends of a pipe have one inode, but are different open files.
func sameDescription(a, b *os.File) bool {
	const kcmpFile = 0
	pid := uintptr(os.Getpid())
	order, _, errno := unix.Syscall6(unix.SYS_KCMP, pid, pid, kcmpFile, a.Fd(), b.Fd(), 0)
	return errno == 0 && order == 0
}

// prune removes descriptors that systemd would have removed by now. The caller holds mu.
func (n *Notify) prune() {
	n.stored = slices.DeleteFunc(n.stored, func(s storedFile) bool {
		poll := []unix.PollFd{{Fd: int32(s.file.Fd())}}
		if !s.polled {
			return false
		}
		if _, err := unix.Poll(poll, 0); err != nil || poll[0].Revents&(unix.POLLHUP|unix.POLLERR) == 0 {
			return false
		}
		_ = s.file.Close()
		return true
	})
}

// Notifications returns the received messages, in order.
func (n *Notify) Notifications() []Notification {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.seen)
}

// Await waits for a message received after since that has a field with a value, such as "READY",
// "1".
func (n *Notify) Await(ctx context.Context, field, value string, since time.Time) (Notification, error) {
	for {
		for _, m := range n.Notifications() {
			if got, ok := m.Fields[field]; ok && got == value && m.Time.After(since) {
				return m, nil
			}
		}
		select {
		case <-ctx.Done():
			return Notification{}, fmt.Errorf("wait for notification %s=%s: %w", field, value, ctx.Err())
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// Stored returns the names of the stored descriptors, in order.
func (n *Notify) Stored() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.prune()
	var names []string
	for _, s := range n.stored {
		names = append(names, s.name)
	}
	return names
}

// Start starts a command that sends its notifications here. It passes the stored descriptors as
// systemd does to a restarted service: from 3 on, with LISTEN_FDS and LISTEN_FDNAMES. LISTEN_PID
// must be the command's own PID, which is unknown before it runs. So a shell sets the variable and
// then executes the command. A message that removes a descriptor waits until the command has
// started.
func (n *Notify) Start(cmd *exec.Cmd) error { return n.StartBy(cmd, cmd.Start) }

// StartBy is Start with a function that starts the command.
func (n *Notify) StartBy(cmd *exec.Cmd, start func() error) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.prune()
	n.prepare(cmd)
	return start()
}

// prepare prepares the command. The caller holds mu.
func (n *Notify) prepare(cmd *exec.Cmd) {
	if cmd.Env == nil {
		cmd.Env = os.Environ()
	}
	cmd.Env = append(cmd.Env, "NOTIFY_SOCKET="+n.Socket)
	if len(n.stored) == 0 {
		return
	}
	var names []string
	cmd.ExtraFiles = nil
	for _, s := range n.stored {
		names = append(names, s.name)
		cmd.ExtraFiles = append(cmd.ExtraFiles, s.file)
	}
	cmd.Env = append(cmd.Env, fmt.Sprintf("LISTEN_FDS=%d", len(names)), "LISTEN_FDNAMES="+strings.Join(names, ":"))
	cmd.Args = append([]string{"sh", "-c", `LISTEN_PID=$$ exec "$0" "$@"`, cmd.Path}, cmd.Args[1:]...)
	cmd.Path = "/bin/sh"
}

// Close closes the socket and the stored descriptors, as the end of the service manager does.
func (n *Notify) Close() error {
	err := n.conn.Close()
	<-n.ended
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, s := range n.stored {
		_ = s.file.Close()
	}
	n.stored = nil
	return errors.Join(err, os.RemoveAll(filepath.Dir(n.Socket)))
}
