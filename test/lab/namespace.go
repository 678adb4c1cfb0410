package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	goruntime "runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// The program runs three times: outside the lab, as PID 1 of the lab, and inside. Environment
// variables say which one it is, and pass data from the outer process.
const (
	stageVariable = "HOSTLER_LAB_STAGE"
	labVariable   = "HOSTLER_LAB"
	stageInit     = "init"
	stageInside   = "inside"
)

// Dir is a tmpfs inside the lab. All files of the lab are in it.
const Dir = "/run/lab"

// Options configure a lab. The zero value downloads everything.
type Options struct {
	Fetch    FetchOptions
	Hostname string       // inside the lab; "hostler-lab" if empty
	Log      *slog.Logger // for downloads; nil logs nothing
	// Terminal lets the inner program read from the terminal, if standard input is one. Only the inner
	// program then gets Ctrl-C.
	Terminal bool
}

// Lab is the lab that this process runs in.
type Lab struct {
	Tools    Tools
	Cgroup   string // absolute cgroup of all pods, in every hierarchy
	Hostname string

	root string // root of the container runtimes, see WithTree; empty for the lab's
}

// Main runs the tests of m inside a lab and exits with their code. A TestMain needs to call nothing
// else. Tests then get the lab with In.
func Main(m *testing.M, o Options) {
	if _, err := Enter(context.Background(), o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// Enter runs the calling program again, with the same arguments, inside a new lab, where Enter
// returns the lab. Outside the lab, Enter returns only if the preparation fails. Otherwise it waits
// for the inner program, cleans up, and exits with its code. If a signal ended it, the code is 128
// plus the number of the signal.
//
// It forwards SIGINT, SIGTERM, SIGQUIT and SIGHUP to the inner program; the second one kills it.
func Enter(ctx context.Context, o Options) (*Lab, error) {
	switch os.Getenv(stageVariable) {
	case stageInside:
		return Current()
	case stageInit:
		os.Exit(initMain())
	}
	if os.Geteuid() != 0 {
		return nil, errors.New("the test bed makes namespaces and mounts: run as root, such as: sudo make test")
	}
	tools, err := Fetch(ctx, o.Fetch, o.Log)
	if err != nil {
		return nil, fmt.Errorf("prepare lab: %w", err)
	}
	l := &Lab{Tools: tools, Cgroup: fmt.Sprintf("/%s%d%s", cgroupPrefix, os.Getpid(), cgroupSuffix), Hostname: o.Hostname}
	if l.Hostname == "" {
		l.Hostname = "hostler-lab"
	}
	code, err := l.outside(o.Terminal)
	if err != nil {
		return nil, fmt.Errorf("enter lab: %w", err)
	}
	os.Exit(code)
	return nil, nil
}

// Current returns the lab that this process runs in.
func Current() (*Lab, error) {
	if os.Getenv(stageVariable) != stageInside {
		return nil, errors.New("not inside a lab: call lab.Main from TestMain or lab.Enter from main")
	}
	l := &Lab{}
	if err := json.Unmarshal([]byte(os.Getenv(labVariable)), l); err != nil {
		return nil, fmt.Errorf("read %s: %w", labVariable, err)
	}
	return l, nil
}

// outside starts PID 1 of the lab, forwards signals, and cleans up.
func (l *Lab) outside(foreground bool) (code int, err error) {
	sweepCgroups()
	before, err := snapshotControllers()
	if err != nil {
		return 0, err
	}
	state, err := json.Marshal(l)
	if err != nil {
		return 0, err
	}
	// The kernel sends the death signal when the forking thread ends, not the process.
	goruntime.LockOSThread()
	defer goruntime.UnlockOSThread()

	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(cleanEnviron(os.Environ()), stageVariable+"="+stageInit, labVariable+"="+string(state))
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
		Pdeathsig:  unix.SIGKILL,
		// A terminal sends Ctrl-C to its whole foreground process group. In a separate group, the inner
		// program gets it only once, from here.
		Setpgid: true,
	}
	if foreground && term.IsTerminal(0) {
		defer keepTerminal()()
		cmd.SysProcAttr.Foreground = true
	}
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM, unix.SIGQUIT, unix.SIGHUP)
	defer signal.Stop(signals)
	if err := cmd.Start(); err != nil {
		if errors.Is(err, unix.EPERM) {
			return 0, fmt.Errorf("make namespaces: %w: run as root with CAP_SYS_ADMIN, such as: sudo make test", err)
		}
		return 0, fmt.Errorf("make namespaces: %w", err)
	}
	ended := make(chan struct{})
	go func() {
		for seen := 0; ; seen++ {
			select {
			case s := <-signals:
				if seen > 0 {
					s = unix.SIGKILL
				}
				// The process may have ended already.
				_ = cmd.Process.Signal(s)
			case <-ended:
				return
			}
		}
	}()
	err = cmd.Wait()
	close(ended)
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return 0, err
	}
	code = cmd.ProcessState.ExitCode()
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		code = 128 + int(status.Signal())
	}
	// PID 1 is reaped only after all processes of its namespace have ended.
	if err := removeCgroup(l.Cgroup, patience); err != nil {
		fmt.Fprintln(os.Stderr, "lab:", err)
		if code == 0 {
			code = 1
		}
	}
	before.restore()
	return code, nil
}

// keepTerminal returns a function that makes this process group the terminal's foreground group
// again.
func keepTerminal() (takeBack func()) {
	state, err := term.GetState(0)
	return func() {
		// A background process that takes the terminal would be stopped.
		signal.Ignore(unix.SIGTTOU)
		defer signal.Reset(unix.SIGTTOU)
		_ = unix.IoctlSetPointerInt(0, unix.TIOCSPGRP, unix.Getpgrp())
		if err == nil {
			_ = term.Restore(0, state)
		}
	}
}

// initMain is PID 1 of the lab: it furnishes the namespaces, runs the program
// as its child, reaps everything, and returns the program's exit code.
func initMain() int {
	fail := func(err error) int {
		fmt.Fprintln(os.Stderr, "furnish lab:", err)
		return 1
	}
	l := &Lab{}
	if err := json.Unmarshal([]byte(os.Getenv(labVariable)), l); err != nil {
		return fail(err)
	}
	if err := l.setUpNamespaces(); err != nil {
		return fail(err)
	}
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM, unix.SIGQUIT, unix.SIGHUP)
	if err := os.Setenv(stageVariable, stageInside); err != nil {
		return fail(err)
	}
	child, err := os.StartProcess("/proc/self/exe", os.Args, &os.ProcAttr{
		Env:   os.Environ(),
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
	})
	if err != nil {
		return fail(err)
	}
	go func() {
		for s := range signals {
			_ = child.Signal(s)
		}
	}()
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		if err == nil && pid == child.Pid && (status.Exited() || status.Signaled()) {
			if err := thawAll(); err != nil {
				return fail(err)
			}
		}
		switch {
		case err == unix.EINTR:
		case err != nil:
			return fail(fmt.Errorf("wait: %w", err))
		case pid == child.Pid && status.Signaled():
			return 128 + int(status.Signal())
		case pid == child.Pid && status.Exited():
			return status.ExitStatus()
		}
	}
}

// cleanEnviron drops what would lead back to the host's daemons.
func cleanEnviron(env []string) []string {
	kept := make([]string, 0, len(env))
	for _, kv := range env {
		name, _, _ := strings.Cut(kv, "=")
		switch name {
		case "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES",
			"INVOCATION_ID", "JOURNAL_STREAM", "KUBECONFIG", "XDG_RUNTIME_DIR", "XDG_SESSION_ID", stageVariable, labVariable:
			continue
		}
		for _, prefix := range []string{"DBUS_", "SYSTEMD_", "DOCKER_", "CONTAINERD_", "CONTAINER_", "HOSTLER_CONFIG", "HOSTLER_SOCKET"} {
			if strings.HasPrefix(name, prefix) {
				name = ""
			}
		}
		if name != "" {
			kept = append(kept, kv)
		}
	}
	return kept
}

// discard returns log, or a logger that discards everything if log is nil.
func discard(log *slog.Logger) *slog.Logger {
	if log == nil {
		return slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	return log
}
