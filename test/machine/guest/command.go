package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"hostler.io/hostler/test/machine/wire"
)

// command is a running command.
type command struct {
	cmd   *exec.Cmd
	tty   *os.File // nil if it has no terminal
	input chan []byte
	done  chan struct{}
}

// start runs a command, and sends its output and its exit code.
func start(run wire.Run, send func(wire.Message)) *command {
	c := &command{input: make(chan []byte, 64), done: make(chan struct{})}
	if err := c.start(run, send); err != nil {
		send(wire.Message{Exit: &wire.Exit{Code: 127, Error: err.Error()}})
		close(c.done)
	}
	return c
}

func (c *command) start(run wire.Run, send func(wire.Message)) error {
	if len(run.Command) == 0 {
		return errors.New("no command")
	}
	c.cmd = exec.Command(run.Command[0], run.Command[1:]...)
	c.cmd.Dir = "/root"
	c.cmd.Env = []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "USER=root", "LC_ALL=C.UTF-8", "TERM=dumb", "PAGER=cat",
	}
	var outputs sync.WaitGroup
	copyOut := func(from io.ReadCloser, message func([]byte) wire.Message) {
		outputs.Go(func() {
			defer from.Close()
			buffer := make([]byte, wire.Chunk)
			for {
				n, err := from.Read(buffer)
				if n > 0 {
					send(message(append([]byte(nil), buffer[:n]...)))
				}
				if err != nil {
					return
				}
			}
		})
	}
	stdout := func(b []byte) wire.Message { return wire.Message{Stdout: b} }
	stderr := func(b []byte) wire.Message { return wire.Message{Stderr: b} }
	var stdin io.WriteCloser
	var ours []io.Closer // the child's ends, which are closed here
	if run.TTY {
		master, slave, err := openTerminal()
		if err != nil {
			return fmt.Errorf("open terminal: %w", err)
		}
		c.tty, stdin, ours = master, nopCloser{master}, []io.Closer{slave}
		c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = slave, slave, slave
		c.cmd.Env = append(c.cmd.Env, "TERM=xterm-256color")
		c.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
		copyOut(master, stdout)
	} else {
		c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		var err error
		if stdin, err = c.cmd.StdinPipe(); err != nil {
			return err
		}
		for _, pipe := range []struct {
			to      *io.Writer
			message func([]byte) wire.Message
		}{{&c.cmd.Stdout, stdout}, {&c.cmd.Stderr, stderr}} {
			r, w, err := os.Pipe()
			if err != nil {
				return err
			}
			*pipe.to = w
			ours = append(ours, w)
			copyOut(r, pipe.message)
		}
	}
	err := c.cmd.Start()
	for _, end := range ours {
		_ = end.Close()
	}
	if err != nil {
		return err
	}
	go func() {
		defer stdin.Close()
		for {
			select {
			case data := <-c.input:
				if data == nil {
					return
				}
				// A command may ignore its input.
				_, _ = stdin.Write(data)
			case <-c.done:
				return
			}
		}
	}()
	go func() {
		outputs.Wait()
		_ = c.cmd.Wait()
		code := c.cmd.ProcessState.ExitCode()
		if status, ok := c.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			code = 128 + int(status.Signal())
		}
		close(c.done)
		send(wire.Message{Exit: &wire.Exit{Code: code}})
	}()
	return nil
}

// receive passes input to a command.
func (c *command) receive(m wire.Message) {
	if len(m.Stdin) > 0 {
		c.say(m.Stdin)
	}
	if m.EOF {
		c.say(nil)
	}
	if m.Size != nil && c.tty != nil {
		_ = unix.IoctlSetWinsize(int(c.tty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: m.Size.Rows, Col: m.Size.Cols})
	}
	if m.Kill {
		c.end()
	}
}

func (c *command) say(data []byte) {
	select {
	case c.input <- data:
	case <-c.done:
	}
}

// end kills the command and the processes that it started.
func (c *command) end() {
	select {
	case <-c.done:
	default:
		_ = unix.Kill(-c.cmd.Process.Pid, unix.SIGKILL)
	}
}

// openTerminal opens a pseudo-terminal.
func openTerminal() (master, slave *os.File, err error) {
	if master, err = os.OpenFile("/dev/ptmx", os.O_RDWR, 0); err != nil {
		return nil, nil, err
	}
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		return nil, nil, errors.Join(err, master.Close())
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		return nil, nil, errors.Join(err, master.Close())
	}
	if slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		return nil, nil, errors.Join(err, master.Close())
	}
	return master, slave, nil
}

// nopCloser keeps the terminal open after the end of the input.
type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }
