package unit

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"

	"hostler.io/hostler/test/lab/unit/message"
)

// Process is a process of a unit. Its methods are safe for concurrent use.
type Process struct {
	PID  int
	Done <-chan struct{} // closed when the process has ended

	unit   string
	handle *os.Process
	status syscall.WaitStatus // valid after Done
	err    error              // why the exit status is unknown
}

// follow waits for the end of a process, which the spawner reports.
func follow(unit string, pid int, conn *net.UnixConn) (*Process, error) {
	handle, err := os.FindProcess(pid)
	if err != nil {
		return nil, err
	}
	done := make(chan struct{})
	p := &Process{PID: pid, Done: done, unit: unit, handle: handle}
	go func() {
		defer close(done)
		defer conn.Close()
		var a message.Answer
		_, err := message.Receive(conn, &a)
		if err == nil && a.Status == nil {
			err = errors.New(a.Error)
		}
		if err != nil {
			p.err = fmt.Errorf("wait for process %d: %w", pid, err)
			return
		}
		p.status = *a.Status
	}()
	return p, nil
}

// Signal sends a signal. It returns an error if the process has ended.
func (p *Process) Signal(s syscall.Signal) error { return p.handle.Signal(s) }

// Running reports whether the process still runs.
func (p *Process) Running() bool {
	select {
	case <-p.Done:
		return false
	default:
		return true
	}
}

// ExitCode returns the exit code of the process; -1 if a signal has ended it, or if it still runs.
func (p *Process) ExitCode() int {
	if p.Running() || p.err != nil || !p.status.Exited() {
		return -1
	}
	return p.status.ExitStatus()
}

// String describes how the process has ended.
func (p *Process) String() string {
	switch {
	case p.Running():
		return "it runs"
	case p.err != nil:
		return p.err.Error()
	case p.status.Signaled():
		return p.status.Signal().String()
	}
	return fmt.Sprintf("exit status %d", p.status.ExitStatus())
}
