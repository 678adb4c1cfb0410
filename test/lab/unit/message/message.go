// Package message has the messages between test/lab/unit and its spawner, over a socket that
// preserves message boundaries. It owns their form, not their meaning.
package message

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Request has the spawner start a program. Beside it go descriptors: of its standard output
// and its standard error, and all that it gets from the third on.
type Request struct {
	Path string
	Args []string // beginning with the program's name
	Env  []string // all of it
}

// Answer is what became of a request: first a process or an error, later its end.
type Answer struct {
	PID    int
	Error  string
	Status *syscall.WaitStatus // how the process has ended; nil before that
}

// Bounds of a message, and of the descriptors beside it.
const (
	maxBytes = 128 << 10
	maxFiles = 64
)

// Send writes a message, with descriptors.
func Send(conn *net.UnixConn, message any, files ...*os.File) error {
	text, err := json.Marshal(message)
	if err != nil {
		return err
	}
	if len(text) > maxBytes || len(files) > maxFiles {
		return fmt.Errorf("send %d bytes and %d descriptors: too many", len(text), len(files))
	}
	var rights []byte
	if len(files) > 0 {
		fds := make([]int, len(files))
		for i, f := range files {
			fds[i] = int(f.Fd())
		}
		rights = unix.UnixRights(fds...)
	}
	_, _, err = conn.WriteMsgUnix(text, rights, nil)
	return err
}

// Receive reads a message, and returns the descriptors that came with it.
func Receive(conn *net.UnixConn, message any) ([]*os.File, error) {
	text, control := make([]byte, maxBytes), make([]byte, unix.CmsgSpace(4*maxFiles))
	n, m, _, _, err := conn.ReadMsgUnix(text, control)
	if err != nil {
		return nil, err
	}
	parts, err := unix.ParseSocketControlMessage(control[:m])
	if err != nil {
		return nil, err
	}
	var files []*os.File
	for _, part := range parts {
		fds, err := unix.ParseUnixRights(&part)
		if err != nil {
			return nil, err
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			files = append(files, os.NewFile(uintptr(fd), "received"))
		}
	}
	return files, json.Unmarshal(text[:n], message)
}
