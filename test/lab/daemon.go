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

// patience bounds the lab's own waits where the caller's context does not: far
// longer than anything takes on a loaded machine.
const patience = 2 * time.Minute

// Daemon is a program of the lab that can be killed, hung and started again.
// Its methods are safe for concurrent use.
type Daemon struct {
	name string
	tool Tool
	args []string
	env  []string
	log  string // file that collects what it prints, over all its lives

	files []*os.File // that it is handed, from the third descriptor on

	mu   sync.Mutex
	cmd  *exec.Cmd
	done chan struct{} // closed when the current life ended
}

// NewDaemon makes a daemon of a program, with more in its environment and its
// arguments. What it prints goes to NAME.log in dir.
func NewDaemon(name string, tool Tool, dir string, env []string, args ...string) *Daemon {
	return &Daemon{name: name, tool: tool, args: args, env: env, log: filepath.Join(dir, name+".log")}
}

// Start runs the daemon; it does nothing while the daemon runs.
func (d *Daemon) Start() error { return d.StartBy((*exec.Cmd).Start) }

// StartBy is Start by a function that starts the command, such as Notify.Start.
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
		// How it ended is in its log; that it ended is what done says.
		_ = cmd.Wait()
		close(done)
	}()
	return nil
}

// replace names another program, which the next Start runs.
func (d *Daemon) replace(path string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.tool.Path = path
}

// running is for callers that hold mu.
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

// PID returns the process of the daemon's current life, or 0 if it is not running.
func (d *Daemon) PID() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.running() {
		return 0
	}
	return d.cmd.Process.Pid
}

// ExitCode is that of a daemon that has ended; -1 where a signal ended it, or nothing did.
func (d *Daemon) ExitCode() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.cmd == nil || d.running() {
		return -1
	}
	return d.cmd.ProcessState.ExitCode()
}

// Signal sends a signal; to a daemon that does not run that is an error.
func (d *Daemon) Signal(s syscall.Signal) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.running() {
		return fmt.Errorf("signal %s: not running", d.name)
	}
	return d.cmd.Process.Signal(s)
}

// Pause makes the daemon hang: its sockets stay, nothing answers. It returns when
// none of its threads runs any more, which is a moment after the signal.
func (d *Daemon) Pause() error {
	pid := d.PID()
	if err := d.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for deadline := time.Now().Add(patience); !stopped(pid); time.Sleep(time.Millisecond) {
		if d.PID() != pid || time.Now().After(deadline) {
			return fmt.Errorf("pause %s: it has not stopped", d.name)
		}
	}
	return nil
}

// stopped tells whether all threads of a process are stopped.
func stopped(pid int) bool {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil || len(threads) == 0 {
		return false
	}
	for _, file := range threads {
		stat, err := os.ReadFile(file)
		if err != nil {
			continue // the thread has ended
		}
		// The name, in parentheses, may hold anything; the state follows it.
		if state := stat[bytes.LastIndexByte(stat, ')')+1:]; !bytes.HasPrefix(state, []byte(" T")) {
			return false
		}
	}
	return true
}

// Continue ends a Pause.
func (d *Daemon) Continue() error { return d.Signal(syscall.SIGCONT) }

// Stop asks the daemon to end and waits for it; it is killed when ctx, or a
// bound of the lab's own, is over first. Stopping a stopped daemon succeeds.
func (d *Daemon) Stop(ctx context.Context) error { return d.end(ctx, syscall.SIGTERM) }

// Kill ends the daemon without warning and waits until it is dead.
func (d *Daemon) Kill() error { return d.end(context.Background(), syscall.SIGKILL) }

func (d *Daemon) end(ctx context.Context, s syscall.Signal) error {
	d.mu.Lock()
	cmd, done, running := d.cmd, d.done, d.running()
	d.mu.Unlock()
	if !running {
		return nil
	}
	// A process that has ended already is fine.
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

// Await calls ready until it succeeds. It gives up when the daemon ends, when
// ctx does, or after a bound of the lab's own, and shows the daemon's log.
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
