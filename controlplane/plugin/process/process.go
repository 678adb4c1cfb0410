// Package process runs the program of a plugin that the agent is to run itself: it
// starts it with a socket of its own, tells whether it serves, and ends it with all that
// it has started.
//
// It owns the program's life and its folder. It refuses to know what is said over the
// socket, and to start a program again: its run ends with it, and is begun anew by whoever
// runs the agent's loops, with their back-off.
package process

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// SocketVariable is where the program finds the path of the socket that it is to serve.
const SocketVariable = "HOSTLER_PLUGIN_SOCKET"

const (
	// serveTimeout is how long a program may take until it serves.
	serveTimeout = 30 * time.Second
	// Interval is how often one that serves is asked whether it is still there.
	Interval = 10 * time.Second
	// maxSilent is how often in a row it may not answer.
	maxSilent = 3
	// stopGrace is how long a program may take to end once it is asked to.
	stopGrace = 3 * time.Second
	// killGrace is how long a killed one may take to be gone.
	killGrace = 3 * time.Second
)

// Socket is the path that a plugin's socket has beside another one, in a folder with the
// name of that, which is emptied: a folder that is merely called "plugin" may be anybody's.
func Socket(beside string) string { return filepath.Join(beside+".plugin", "plugin.sock") }

// Options say what to run. All are required.
type Options struct {
	// Command is the absolute path of an executable, and its arguments.
	Command []string
	// Socket is what it is told to serve. The folder that it lies in is the program's: it
	// is made anew with each start, and nobody else enters it.
	Socket string
	// Probe tells whether the plugin serves, and returns soon after its context ends.
	Probe func(context.Context) error
	Log   *slog.Logger
}

// Process is a plugin's program. It may be run again after its run has ended.
type Process struct {
	o   Options
	log *slog.Logger
	// They are the constants of that name, but in tests.
	serve, interval, grace time.Duration

	mu   sync.Mutex // guards ends
	ends Ends
}

// Ends are how often a program's runs have ended by themselves: it did, or did not serve
// and was ended, or could not be started.
type Ends struct {
	Times int
	Last  error     // why the last one has; nil before the first
	At    time.Time // when
}

// Ends are those since the Process was made.
func (p *Process) Ends() Ends {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ends
}

// New prepares a program, and does not start it. It need not be there yet.
func New(o Options) (*Process, error) {
	switch {
	case len(o.Command) == 0 || !filepath.IsAbs(o.Command[0]):
		return nil, fmt.Errorf("plugin's command %q: it begins with no absolute path", o.Command)
	case !filepath.IsAbs(o.Socket):
		return nil, fmt.Errorf("plugin's socket %q: not an absolute path", o.Socket)
	case o.Probe == nil || o.Log == nil:
		return nil, errors.New("plugin: no probe or no log")
	}
	return &Process{
		o: o, log: o.Log.With("component", "plugin", "command", o.Command[0]),
		serve: serveTimeout, interval: Interval, grace: stopGrace,
	}, nil
}

// Run runs the program until ctx ends or the program does, or it no longer serves, and
// says which. What it has started is gone then as well. beat is called with how each
// look at it ended.
func (p *Process) Run(ctx context.Context, beat func(error)) error {
	err := p.run(ctx, beat)
	if ctx.Err() == nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.ends = Ends{Times: p.ends.Times + 1, Last: err, At: time.Now()}
	}
	return err
}

func (p *Process) run(ctx context.Context, beat func(error)) error {
	if err := p.furnish(); err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(filepath.Dir(p.o.Socket)) }() // nobody serves it any more
	child := p.start()
	attending, leave := context.WithCancel(ctx)
	defer leave()
	trouble := make(chan error, 1)
	attended := make(chan struct{})
	go func() {
		defer close(attended)
		if err := p.attend(attending, beat); err != nil {
			trouble <- err
		}
	}()
	var err error
	select {
	case <-child.ended:
		err = fmt.Errorf("plugin %s has ended: %w", p.o.Command[0], child.fate())
	case err = <-trouble:
	case <-ctx.Done():
		err = ctx.Err()
	}
	leave()
	<-attended
	if stuck := p.end(child); stuck != nil {
		err = errors.Join(err, stuck)
	}
	return err
}

// furnish makes the folder of the socket anew, and looks whether the program is one that
// root may run.
func (p *Process) furnish() error {
	if err := Check(p.o.Command[0]); err != nil {
		return err
	}
	folder := filepath.Dir(p.o.Socket)
	if err := os.MkdirAll(filepath.Dir(folder), 0o755); err != nil {
		return fmt.Errorf("make room for the plugin's socket: %w", err)
	}
	if err := os.RemoveAll(folder); err != nil {
		return fmt.Errorf("clear the folder of the plugin's socket: %w", err)
	}
	if err := os.Mkdir(folder, 0o700); err != nil {
		return fmt.Errorf("make the folder of the plugin's socket: %w", err)
	}
	return nil
}

// attend asks the program whether it serves, until it does not any more.
func (p *Process) attend(ctx context.Context, beat func(error)) error {
	starting, cancel := context.WithTimeout(ctx, p.serve)
	defer cancel()
	for {
		err := p.o.Probe(starting)
		if ctx.Err() != nil {
			return nil
		}
		if err == nil {
			break
		}
		beat(err)
		select {
		case <-time.After(p.interval / 10): // the probe itself waits for a socket that is not there
		case <-starting.Done():
			return fmt.Errorf("plugin %s does not serve %s, %v after its start: %w", p.o.Command[0], p.o.Socket, p.serve, err)
		}
	}
	beat(nil)
	p.log.Info("plugin serves")
	tick := time.NewTicker(p.interval)
	defer tick.Stop()
	for silent := 0; ; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		asking, done := context.WithTimeout(ctx, p.interval)
		err := p.o.Probe(asking)
		done()
		if ctx.Err() != nil {
			return nil
		}
		beat(err)
		if err == nil {
			silent = 0
			continue
		}
		if silent++; silent == maxSilent {
			return fmt.Errorf("plugin %s has not answered %d times in a row, and is ended: %w", p.o.Command[0], silent, err)
		}
	}
}

// end ends a program, and all that it has started: it is asked to, and then killed. The
// error is of one that cannot be killed.
func (p *Process) end(c *child) error {
	c.signal(true)
	if c.gone(p.grace) {
		return nil
	}
	p.log.Warn("plugin does not end when it is asked to, and is killed", "after", p.grace)
	c.signal(false)
	if c.gone(killGrace) {
		return nil
	}
	return fmt.Errorf("plugin %s cannot be killed: it waits in the kernel, as for a disk or a mount that does not answer", p.o.Command[0])
}

// UnfitError tells why a program is not run, and what mends that.
type UnfitError struct{ Path, Why, Mend string }

// Error says both.
func (e *UnfitError) Error() string { return fmt.Sprintf("plugin %s %s: %s", e.Path, e.Why, e.Mend) }

// Check refuses a program that cannot be run, or that others than root, or hostler's own
// user, could exchange: it runs with hostler's rights. Its error is an *UnfitError.
func Check(path string) error {
	const where = "controlPlane.plugin.command"
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &UnfitError{path, "is not there", "install it, or mend " + where}
	case err != nil:
		return &UnfitError{path, "cannot be looked at (" + err.Error() + ")", "let hostler's user get there, or mend " + where}
	case !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0:
		return &UnfitError{path, fmt.Sprintf("is no executable (%v)", info.Mode()), "chmod +x " + path + ", or mend " + where}
	case info.Mode().Perm()&0o022 != 0 || !own(info):
		return &UnfitError{
			path, fmt.Sprintf("may be exchanged by others than root (%v), and would run with hostler's rights", info.Mode()),
			fmt.Sprintf("chown root %[1]s; chmod go-w %[1]s", path),
		}
	}
	return nil
}
