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

// Request requests the start of a program. The message contains descriptors: standard output,
// standard error, and those from the third on.
type Request struct {
	Path string
	Args []string // including the program's name
	Env  []string // the complete environment
}

// Answer is the result of a request: first a process or an error, later its exit status.
type Answer struct {
	PID    int
	Error  string
	Status *syscall.WaitStatus // exit status of the process; nil before it has ended
}

// Limits of a message and of its descriptors.
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

// Receive reads a message, and returns its descriptors.
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
