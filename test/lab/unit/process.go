package unit

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"

	"hostler.io/hostler/test/lab/unit/message"
)

// Process is a program that runs as a process of a unit. Its methods are safe for concurrent
// use.
type Process struct {
	PID  int
	Done <-chan struct{} // closed when it has ended

	unit   string
	handle *os.Process
	status syscall.WaitStatus // once Done
	err    error              // why how it has ended is not known
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

// Signal sends a signal. To a process that has ended that is an error.
func (p *Process) Signal(s syscall.Signal) error { return p.handle.Signal(s) }

// Running tells whether it has not ended.
func (p *Process) Running() bool {
	select {
	case <-p.Done:
		return false
	default:
		return true
	}
}

// ExitCode is with what the process has ended; -1 where by a signal, or not at all yet.
func (p *Process) ExitCode() int {
	if p.Running() || p.err != nil || !p.status.Exited() {
		return -1
	}
	return p.status.ExitStatus()
}

// String says how the process has ended.
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
