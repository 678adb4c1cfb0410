package conditions

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"os/exec"
	goruntime "runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"hostler.io/hostler/internal/account"
	"hostler.io/hostler/internal/oom"
	"hostler.io/hostler/internal/sanitize"
	"hostler.io/hostler/internal/trust"
	"hostler.io/hostler/status"
)

const (
	// messageBytes bounds a message. An Event has 1024 bytes, including the text around the
	// message.
	messageBytes = 512
	// keptBytes is how much of the beginning or the end of a stream is kept.
	keptBytes = 4 << 10
	// outputBytes is how much a check may print to a stream until it is killed.
	outputBytes = 8 << 20
	// pipeGrace is how long a process that a check left running may keep its output open, if it was
	// not killed with the check.
	pipeGrace = time.Second
	// killGrace is how long to wait until a killed check has ended. If a process waits in the
	// kernel for a disk or a network mount, it ends only when that answers.
	killGrace = 2*pipeGrace + time.Second
	// searchPath is the PATH of checks, without the folders that users other than root can change.
	searchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
)

// group is the process group of a running check. Its ID is valid until its first process was waited
// for.
type group struct {
	mu         sync.Mutex // guards the fields below
	id         int        // 0 before the start, and after the wait
	expectKill bool
}

func (g *group) started(id int) {
	g.mu.Lock()
	g.id = id
	doomed := g.expectKill
	g.mu.Unlock()
	if doomed {
		g.kill()
	}
}

// kill kills all processes of the group, now or at its start.
func (g *group) kill() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.expectKill = true
	if g.id != 0 {
		_ = unix.Kill(-g.id, unix.SIGKILL) // all may have ended
	}
}

// reap kills the processes that the first one, which has ended, left running, and then invalidates
// the ID.
func (g *group) reap() {
	g.kill()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.id = 0
}

// execute runs a check once. It returns soon after the check's timeout, or soon after ctx ends.
// gone is closed when the check has ended, which may be later.
func execute(ctx context.Context, p Program) (r Result, gone <-chan struct{}) {
	r.Started = time.Now()
	defer func() { r.Took = time.Since(r.Started) }()
	var g group
	done, ended := make(chan Result, 1), make(chan struct{})
	go func() {
		defer close(ended)
		// The thread is never unlocked, so it ends with this goroutine. It must not gain privileges
		// any more, and when it ends, the check is killed (PR_SET_PDEATHSIG, prctl(2)).
		goruntime.LockOSThread()
		done <- start(p, &g)
	}()
	late := time.NewTimer(p.Timeout)
	defer late.Stop()
	select {
	case answer := <-done:
		r.Answer, r.Message = answer.Answer, answer.Message
		return r, ended
	case <-ctx.Done():
	case <-late.C:
	}
	r.Answer, r.Message = status.TimedOut, fmt.Sprintf("the check did not end within %v", p.Timeout)
	g.kill()
	killed := time.NewTimer(killGrace)
	defer killed.Stop()
	select {
	case answer := <-done:
		if answer.printed != "" {
			r.Message += "; output: " + answer.printed
		}
	case <-killed.C:
		r.Message += ", and cannot be killed: it is blocked in the kernel, such as on a disk or a mount"
	}
	return r, ended
}

// start starts a check and waits until it ends.
func start(p Program, g *group) Result {
	path := trust.SearchPath(searchPath)
	real, _, err := trust.Program(p.Path, path) // checked again, because it may have changed since it was read
	if _, refused := errors.AsType[*trust.Error](err); refused {
		return Result{Answer: status.NotRun, Message: notRun(p.Path, err, "").String()}
	}
	if err != nil {
		return failed(p, err)
	}
	credential, err := p.credential()
	if err == nil && credential != nil {
		err = unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
	}
	if err != nil {
		return failed(p, err)
	}
	out, complaint := &stream{}, &stream{end: true}
	cmd := &exec.Cmd{
		Path: real, Args: []string{p.Path}, Dir: "/",
		Env:    []string{"PATH=" + path, "LANG=C.UTF-8", "HOME=/", "USER=" + p.User, "LOGNAME=" + p.User},
		Stdout: out, Stderr: complaint, WaitDelay: pipeGrace,
		// A new session has no terminal. Otherwise a check of another user could type commands into
		// the terminal of an agent that was started manually (TIOCSTI, ioctl_tty(2)).
		SysProcAttr: &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL, Credential: credential},
	}
	// The check must not inherit other descriptors of the agent. Linux before 5.11 lacks the call.
	_ = unix.CloseRange(3, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC)
	if err := cmd.Start(); err != nil {
		return failed(p, err)
	}
	oom.Reset(oom.Proc, cmd.Process.Pid)
	g.started(cmd.Process.Pid)
	for { // WNOWAIT keeps the process ID, and so the group's ID, in use
		err := unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			break
		}
	}
	g.reap()
	err = cmd.Wait()
	if cmd.ProcessState == nil {
		return failed(p, err)
	}
	if max(out.size, complaint.size) > outputBytes {
		return Result{Answer: status.Undecided, Message: fmt.Sprintf("the check was killed because it printed more than %d MiB", outputBytes>>20)}
	}
	return judge(cmd.ProcessState.Sys().(syscall.WaitStatus), message(out, complaint))
}

// judge returns the result for the exit status and the output of a check.
func judge(end syscall.WaitStatus, text string) Result {
	r := Result{Answer: status.Undecided, Message: text, printed: text}
	switch {
	case end.Signaled():
		r.Message = fmt.Sprintf("the check was killed by signal %d (%v)", end.Signal(), end.Signal())
		if text != "" {
			r.Message += "; output: " + text
		}
		return r
	case end.ExitStatus() == 0:
		r.Answer = status.Passed
	case end.ExitStatus() == 1:
		r.Answer = status.Problem
	}
	if r.Message == "" {
		r.Message = fmt.Sprintf("the check exited with code %d and printed nothing", end.ExitStatus())
	}
	return r
}

// failed returns the result for a check that could not be started, with a fix.
func failed(p Program, err error) Result {
	why := err
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		why = path.Err
	}
	hint := ""
	missing, lacks := errors.AsType[*account.Error](err)
	switch {
	case lacks:
		hint = "; " + missing.Hint
	case errors.Is(err, fs.ErrPermission) && p.isSwitched():
		hint = fmt.Sprintf("; let user %s read and execute it, and enter its folder", p.User)
	case errors.Is(err, fs.ErrNotExist) && endsAsOnWindows(p.Path):
		hint = "; its first line ends in a carriage return, which becomes part of the interpreter's name: run sed -i 's/\\r$//' " + p.Path
	case errors.Is(err, fs.ErrNotExist):
		hint = "; the file, or the interpreter in its first line, does not exist"
	case errors.Is(err, syscall.ENOEXEC):
		hint = "; begin the script with its interpreter, such as #!/bin/sh"
	}
	return Result{Answer: status.NotRun, Message: fmt.Sprintf("start %s: %v%s", p.Path, why, hint)}
}

// endsAsOnWindows reports whether the first line of a script, as far as the kernel reads it for the
// interpreter (execve(2)), ends in a carriage return.
func endsAsOnWindows(path string) bool {
	file, err := os.Open(path)
	if err != nil {
		return false // only a hint depends on it
	}
	defer func() { _ = file.Close() }()
	line := make([]byte, 256)
	n, _ := io.ReadFull(file, line)
	first, _, ended := bytes.Cut(line[:n], []byte("\n"))
	return ended && bytes.HasPrefix(first, []byte("#!")) && bytes.HasSuffix(first, []byte("\r"))
}

// errTooMuch ends a check that prints without end: its pipe is closed.
var errTooMuch = errors.New("too much output")

// stream keeps the beginning or the end of a check's output.
type stream struct {
	end  bool
	kept []byte
	size int
}

// Write receives output.
func (s *stream) Write(p []byte) (int, error) {
	s.size += len(p)
	if s.size > outputBytes {
		return 0, errTooMuch
	}
	switch {
	case s.end:
		s.kept = append(s.kept, p[max(0, len(p)-keptBytes):]...)
		s.kept = append(s.kept[:0], s.kept[max(0, len(s.kept)-keptBytes):]...)
	case len(s.kept) < keptBytes:
		s.kept = append(s.kept, p[:min(len(p), keptBytes-len(s.kept))]...)
	}
	return len(p), nil
}

// message returns the first line of the output or, if there is none, the last line of the error
// output.
func message(out, complaint *stream) string {
	for line := range bytes.Lines(out.kept) {
		if text := sanitize.Line(string(line), messageBytes); text != "" {
			return text
		}
	}
	last := ""
	for line := range bytes.Lines(complaint.kept) {
		if text := sanitize.Line(string(line), messageBytes); text != "" {
			last = text
		}
	}
	return last
}
