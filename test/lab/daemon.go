package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// patience limits waits if the caller's context does not. It is far longer than anything takes on a
// busy machine.
const patience = 5 * time.Minute

// Daemon is a program of the lab that can be killed, paused and started again. Its methods are safe
// for concurrent use.
type Daemon struct {
	name string
	tool Tool
	args []string
	env  []string
	log  string // file with the output of all its processes

	files []*os.File // passed to the process, from the third descriptor on

	mu   sync.Mutex
	cmd  *exec.Cmd
	done chan struct{} // closed when the present process has ended
}

// NewDaemon returns a daemon that runs a program, with additional environment variables and
// arguments. Its output goes to NAME.log in dir.
func NewDaemon(name string, tool Tool, dir string, env []string, args ...string) *Daemon {
	return &Daemon{name: name, tool: tool, args: args, env: env, log: filepath.Join(dir, name+".log")}
}

// Start runs the daemon. It does nothing if the daemon runs.
func (d *Daemon) Start() error { return d.StartBy((*exec.Cmd).Start) }

// StartBy is Start with a function that starts the command, such as Notify.Start.
func (d *Daemon) StartBy(start func(*exec.Cmd) error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.running() {
		return nil
	}
	log, err := os.OpenFile(d.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("start %s: %w", d.name, err)
	}
	defer log.Close()
	cmd := exec.Command(d.tool.Path, d.args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(append(os.Environ(), d.tool.Environ()...), d.env...)
	cmd.ExtraFiles = d.files
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := start(cmd); err != nil {
		return fmt.Errorf("start %s: %w", d.name, err)
	}
	done := make(chan struct{})
	d.cmd, d.done = cmd, done
	go func() {
		// The log shows how it ended; closing done shows that it ended.
		_ = cmd.Wait()
		close(done)
	}()
	return nil
}

// replace sets another program for the next Start.
func (d *Daemon) replace(path string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.tool.Path = path
}

// running reports whether the process runs. The caller holds mu.
func (d *Daemon) running() bool {
	if d.cmd == nil {
		return false
	}
	select {
	case <-d.done:
		return false
	default:
		return true
	}
}

// PID returns the PID of the present process; 0 if the daemon does not run.
func (d *Daemon) PID() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.running() {
		return 0
	}
	return d.cmd.Process.Pid
}

// ExitCode returns the exit code of a daemon that has ended; -1 if a signal ended it, or if it has
// not run or still runs.
func (d *Daemon) ExitCode() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.cmd == nil || d.running() {
		return -1
	}
	return d.cmd.ProcessState.ExitCode()
}

// Signal sends a signal. It returns an error if the daemon does not run.
func (d *Daemon) Signal(s syscall.Signal) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.running() {
		return fmt.Errorf("signal %s: not running", d.name)
	}
	return d.cmd.Process.Signal(s)
}

// Pause stops the daemon: its sockets stay open, but it does not answer. It returns when all its
// threads are stopped, which is a moment after the signal.
func (d *Daemon) Pause() error {
	pid := d.PID()
	if err := d.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for deadline := time.Now().Add(patience); !Stopped(pid); time.Sleep(time.Millisecond) {
		if d.PID() != pid || time.Now().After(deadline) {
			return fmt.Errorf("pause %s: it has not stopped", d.name)
		}
	}
	return nil
}

// Stopped reports whether all threads of a process are stopped, which is a moment after the signal.
func Stopped(pid int) bool {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil || len(threads) == 0 {
		return false
	}
	for _, file := range threads {
		stat, err := os.ReadFile(file)
		if err != nil {
			continue // the thread has ended
		}
		// The name, in parentheses, may contain anything. The state follows it.
		if state := stat[bytes.LastIndexByte(stat, ')')+1:]; !bytes.HasPrefix(state, []byte(" T")) {
			return false
		}
	}
	return true
}

// Continue ends a Pause.
func (d *Daemon) Continue() error { return d.Signal(syscall.SIGCONT) }

// Stop sends SIGTERM and waits for the end. When ctx ends, or after patience, it kills the daemon.
// It succeeds if the daemon does not run.
func (d *Daemon) Stop(ctx context.Context) error { return d.end(ctx, syscall.SIGTERM) }

// Kill sends SIGKILL and waits for the end.
func (d *Daemon) Kill() error { return d.end(context.Background(), syscall.SIGKILL) }

func (d *Daemon) end(ctx context.Context, s syscall.Signal) error {
	d.mu.Lock()
	cmd, done, running := d.cmd, d.done, d.running()
	d.mu.Unlock()
	if !running {
		return nil
	}
	// The process may have ended already.
	_ = cmd.Process.Signal(s)
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
	}
	_ = cmd.Process.Kill()
	select {
	case <-done:
	case <-time.After(patience):
	}
	return fmt.Errorf("stop %s: still running after %v: %w", d.name, s, ctx.Err())
}

// Log returns the last n lines that the daemon printed.
func (d *Daemon) Log(n int) string {
	data, err := os.ReadFile(d.log)
	if err != nil {
		return err.Error()
	}
	return LastLines(string(data), n)
}

// Await calls ready until it succeeds. It fails when the daemon ends, when ctx ends, or after
// patience. The error contains the daemon's log.
func (d *Daemon) Await(ctx context.Context, ready func(context.Context) error) error {
	d.mu.Lock()
	done := d.done
	d.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var err error
	for {
		if err = ready(ctx); err == nil {
			return nil
		}
		select {
		case <-time.After(10 * time.Millisecond):
			continue
		case <-done:
			err = errors.Join(errors.New("it ended"), err)
		case <-ctx.Done():
		}
		return fmt.Errorf("wait for %s: %w\n%s", d.name, err, d.Log(20))
	}
}
