package process

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"os/exec"
	goruntime "runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"hostler.io/hostler/internal/sanitize"
)

const (
	// pipeGrace is how long what a program has left behind, and was not killed with it,
	// may hold its output open.
	pipeGrace = time.Second
	// maxLine is how much of a line of its output goes to the log.
	maxLine = 4 << 10
	// maxWords is how much of its last one is told with its end.
	maxWords = 512
	// searchPath is where a program finds its commands.
	searchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
)

// child is a program that was started, or could not be.
type child struct {
	ended chan struct{} // closed when it has ended, with its group

	mu     sync.Mutex // guards what follows
	id     int        // of the process and its group; 0 before it is started, and once it was waited for
	doomed bool       // it is to end as soon as it is started
	err    error      // how it ended
}

// start starts the program. How that went is read off its end.
func (p *Process) start() *child {
	c := &child{ended: make(chan struct{})}
	go func() {
		defer close(c.ended)
		// A program ends with the thread that has started it (PR_SET_PDEATHSIG, prctl(2)),
		// which this goroutine keeps for as long as that.
		goruntime.LockOSThread()
		defer goruntime.UnlockOSThread()
		err := c.run(p)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.err = err
	}()
	return c
}

// run starts the program and waits until it and its group have ended.
func (c *child) run(p *Process) error {
	out, complaint := &lines{log: p.log, stream: "stdout"}, &lines{log: p.log, stream: "stderr"}
	cmd := &exec.Cmd{
		Path: p.o.Command[0], Args: p.o.Command, Dir: "/",
		Env:    []string{"PATH=" + searchPath, "LANG=C.UTF-8", "HOME=/", SocketVariable + "=" + p.o.Socket},
		Stdout: out, Stderr: complaint, WaitDelay: pipeGrace,
		// A session of its own is a group of its own, too, and has no terminal: Ctrl-C there
		// is for the agent, which needs the plugin for its last words.
		SysProcAttr: &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL},
	}
	// What whoever started the agent has left open is none of the plugin's business. Linux
	// before 5.11 does not know how.
	_ = unix.CloseRange(3, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC)
	if err := cmd.Start(); err != nil {
		return hinted(err)
	}
	c.started(cmd.Process.Pid)
	for { // WNOWAIT leaves its number, and so the group's, as it is
		if err := unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err != unix.EINTR {
			break
		}
	}
	c.reap()
	err := cmd.Wait()
	out.flush()
	complaint.flush()
	switch {
	case cmd.ProcessState == nil:
		return err
	case cmd.ProcessState.Success():
		return errors.New("exit status 0: a plugin serves until it is asked to end")
	case complaint.last != "":
		return fmt.Errorf("%v: it said: %s", cmd.ProcessState, sanitize.Line(complaint.last, maxWords))
	}
	return errors.New(cmd.ProcessState.String())
}

// hinted says what keeps a program from being started.
func hinted(err error) error {
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		err = path.Err
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("it cannot be started: %w: it, or the interpreter that its first line names, is not there", err)
	case errors.Is(err, syscall.ENOEXEC):
		return fmt.Errorf("it cannot be started: %w: the first line of a script names its interpreter, as #!/bin/sh", err)
	}
	return fmt.Errorf("it cannot be started: %w", err)
}

// started takes note of the group, and ends it if that was wanted meanwhile.
func (c *child) started(id int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.id = id; c.doomed {
		_ = unix.Kill(-id, unix.SIGKILL) // none may be left
	}
}

// signal asks the group to end, or kills it.
func (c *child) signal(ask bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.doomed = true
	switch {
	case c.id == 0: // it is not started yet, or gone
	case ask:
		_ = unix.Kill(-c.id, unix.SIGTERM)
	default:
		_ = unix.Kill(-c.id, unix.SIGKILL)
	}
}

// reap kills what the first process, which has ended, left behind, and then lets go.
func (c *child) reap() {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = unix.Kill(-c.id, unix.SIGKILL)
	c.id = 0
}

// fate is how the program ended.
func (c *child) fate() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// gone tells whether it has ended, and waits for that no longer than limit.
func (c *child) gone(limit time.Duration) bool {
	late := time.NewTimer(limit)
	defer late.Stop()
	select {
	case <-c.ended:
		return true
	case <-late.C:
		return false
	}
}

// own tells what belongs to root or hostler's own user.
func own(info fs.FileInfo) bool {
	owner, known := info.Sys().(*syscall.Stat_t)
	return known && (owner.Uid == 0 || int(owner.Uid) == os.Geteuid())
}

// lines hands a stream of the program's output to the log, line by line. It is written to
// by one at a time, and flushed after that.
type lines struct {
	log    *slog.Logger
	stream string
	begun  []byte // of the line that has not ended
	last   string // line that was logged
}

// Write takes in what is printed. It never fails: a plugin is not to end for what it says.
func (l *lines) Write(p []byte) (int, error) {
	rest := p
	for {
		line, after, ended := bytes.Cut(rest, []byte("\n"))
		l.begun = append(l.begun, line[:min(len(line), maxLine-len(l.begun))]...)
		if !ended {
			return len(p), nil
		}
		l.flush()
		rest = after
	}
}

// flush logs the line that was begun, if there is one, as a terminal may show it.
func (l *lines) flush() {
	if text := sanitize.Line(string(l.begun), maxLine); text != "" {
		l.last = text
		l.log.Info("plugin says", "stream", l.stream, "text", l.last)
	}
	l.begun = l.begun[:0]
}
