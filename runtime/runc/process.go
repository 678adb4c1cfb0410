package runc

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// errEnded: the process has ended, or another process has its PID.
var errEnded = errors.New("process has exited")

// isAlive reports whether a process with that start time, in the ticks of proc_pid_stat(5), still
// runs. A zombie does not.
func isAlive(procRoot string, pid int, start uint64) (bool, error) {
	proc, err := procfs.NewFS(procRoot)
	if err != nil {
		return false, err
	}
	var stat procfs.ProcStat
	p, err := proc.Proc(pid)
	if err == nil {
		stat, err = p.Stat()
	}
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ESRCH):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("inspect process %d: %w", pid, err)
	}
	return stat.Starttime == start && stat.State != "Z" && stat.State != "X", nil
}

// ancestors returns the ancestors of a process that still exist.
func ancestors(procRoot string, pid int) []int {
	proc, err := procfs.NewFS(procRoot)
	if err != nil {
		return nil
	}
	var list []int
	for {
		p, err := proc.Proc(pid)
		if err != nil {
			return list
		}
		stat, err := p.Stat()
		if err != nil || stat.PPID <= 0 || slices.Contains(list, stat.PPID) {
			return list
		}
		pid = stat.PPID
		list = append(list, pid)
	}
}

// process is the first process of a container. It has a descriptor, so that the PID cannot be
// reused (pidfd_open(2)). One goroutine may wait for it at a time.
type process struct{ file *os.File }

// hold returns the process with that start time, or errEnded. The caller closes it.
func hold(procRoot string, pid int, start uint64) (*process, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	switch {
	case errors.Is(err, unix.ESRCH):
		return nil, errEnded
	case errors.Is(err, unix.ENOSYS):
		return nil, fmt.Errorf("open process %d: %w: Linux 5.3 or later is required", pid, err)
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT):
		// The PID may belong to a thread by now, or to a process that is being reaped.
		if alive, failed := isAlive(procRoot, pid, start); failed == nil && !alive {
			return nil, errEnded
		}
		return nil, fmt.Errorf("open process %d: %w", pid, err)
	case err != nil:
		return nil, fmt.Errorf("open process %d: %w", pid, err)
	}
	// Go then waits for it as for a socket, without blocking a thread.
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, errors.Join(fmt.Errorf("open process %d: %w", pid, err), unix.Close(fd))
	}
	p := &process{file: os.NewFile(uintptr(fd), "pidfd")}
	// Checked only now, because the PID cannot change any more.
	alive, err := isAlive(procRoot, pid, start)
	if err == nil && !alive {
		err = errEnded
	}
	if err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

func (p *process) close() { _ = p.file.Close() } // it may be closed already

// await returns nil once the process has ended, or the cause if ctx ends first.
func (p *process) await(ctx context.Context) error {
	conn, err := p.file.SyscallConn()
	if err != nil {
		return err
	}
	if err := p.file.SetReadDeadline(time.Time{}); err != nil {
		return fmt.Errorf("wait for a process: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = p.file.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	var failed error
	err = conn.Read(func(fd uintptr) (done bool) {
		polled := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(polled, 0)
		if err != nil && err != unix.EINTR {
			failed = err
		}
		return failed != nil || n > 0
	})
	if failed != nil || err == nil {
		return failed
	}
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return fmt.Errorf("wait for a process: %w", err)
}

// signal sends a signal, and ignores that the process has ended.
func (p *process) signal(s syscall.Signal) error {
	conn, err := p.file.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = conn.Control(func(fd uintptr) { failed = unix.PidfdSendSignal(int(fd), s, nil, 0) })
	if failed != nil && !errors.Is(failed, unix.ESRCH) {
		err = fmt.Errorf("send signal %d: %w", s, failed)
	}
	return err
}
