package reboot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"hostler.io/hostler/internal/sanitize"
	"hostler.io/hostler/internal/trust"
	"hostler.io/hostler/status"
	"hostler.io/hostler/status/conditions"
)

const (
	// commandTime bounds the command that reboots the host.
	commandTime = time.Minute
	// mostOutput bounds the part of a command's output that is shown, in bytes.
	mostOutput = 300
)

// Runnable returns an error unless Run can start a command: its program exists, and only root can change it.
func Runnable(command []string) error {
	_, _, err := find(command)
	return err
}

// find returns the path of a command's program, and the PATH for it.
func find(command []string) (path, searchPath string, err error) {
	searchPath = trust.SearchPath(os.Getenv("PATH"))
	path, err = trust.Command(command[0], searchPath)
	if untrusted, refused := errors.AsType[*trust.Error](err); refused {
		err = fmt.Errorf("%w: %s", err, untrusted.Hint)
	}
	if err != nil {
		return "", "", fmt.Errorf("`%s`: %w", strings.Join(command, " "), err)
	}
	return path, searchPath, nil
}

// Run runs a command that reboots the host, such as `systemctl reboot`.
func Run(ctx context.Context, command []string) error {
	path, searchPath, err := find(command)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, commandTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, command[1:]...)
	cmd.Env = append(os.Environ(), "PATH="+searchPath)
	cmd.WaitDelay = time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // the command may outlive the agent
	output, err := cmd.CombinedOutput()
	switch text := sanitize.Text(string(bytes.TrimSpace(output)), mostOutput); {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("`%s` did not end within %v", strings.Join(command, " "), commandTime)
	case text == "":
		return fmt.Errorf("`%s`: %w", strings.Join(command, " "), err)
	default:
		return fmt.Errorf("`%s`: %w: %s", strings.Join(command, " "), err, text)
	}
}

// Sentinels returns the existing files that request a reboot. booted is the time of the boot. A file whose time is in
// the future was written while the clock was wrong, and may be older than the boot. Files in folders that others may
// write are not believed.
func Sentinels(paths []string, booted time.Time) (wanted, undecided []Finding) {
	for _, path := range paths {
		var info os.FileInfo
		_, _, err := trust.Path(filepath.Dir(path))
		if err == nil {
			info, err = os.Stat(path)
		}
		untrusted, refused := errors.AsType[*trust.Error](err)
		now := time.Now()
		switch {
		case refused:
			undecided = append(undecided, Finding{Source: path, Message: "is not read because " + untrusted.Error(), Hint: "name a file in a folder that only root can write in reboot.sentinels"})
		case err == nil:
			wanted = append(wanted, Finding{Source: path, Message: packages(path), New: info.ModTime().After(booted) && !info.ModTime().After(now)})
		case !errors.Is(err, os.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR):
			undecided = append(undecided, Finding{Source: path, Message: err.Error(), Hint: "check the file system of " + path})
		}
	}
	return wanted, undecided
}

// Bounded checks files whose file system may hang. At most one check runs at a time. Only one goroutine may use
// it.
type Bounded struct {
	Find func() (wanted, undecided []Finding)

	late  <-chan found // receives the result of a check that timed out; nil if none is running
	since time.Time    // of the first check without a result since the last one with a result; zero if there is none
}

// lateTime is how long the result of files and checks is not known yet while their file system does not answer.
const lateTime = time.Minute

// Pending reports whether checks have failed for a short time only.
func (b *Bounded) Pending() bool { return !b.since.IsZero() && time.Since(b.since) < lateTime }

// Check returns the result of Find, or the cause of the end of ctx.
func (b *Bounded) Check(ctx context.Context) (wanted, undecided []Finding, err error) {
	defer func(began time.Time) {
		switch {
		case err == nil:
			b.since = time.Time{}
		case b.since.IsZero():
			b.since = began
		}
	}(time.Now())
	if b.late != nil { // the result of that check is old: discard it
		if _, err := receive(ctx, b.late); err != nil {
			return nil, nil, err
		}
	}
	results := make(chan found, 1)
	b.late = results
	go func() {
		wanted, undecided := b.Find()
		results <- found{wanted: wanted, undecided: undecided}
	}()
	f, err := receive(ctx, results)
	if err == nil {
		b.late = nil
	}
	return f.wanted, f.undecided, err
}

// receive returns the next value of a channel, or the cause of the end of ctx.
func receive[T any](ctx context.Context, from <-chan T) (value T, err error) {
	select {
	case value = <-from:
		return value, nil
	case <-ctx.Done():
		return value, context.Cause(ctx)
	}
}

// packages returns the packages that require a reboot. On Debian, a file beside the sentinel lists them.
func packages(path string) string {
	text, err := trust.ReadUntrusted(path + ".pkgs")
	if err != nil {
		return ""
	}
	return sanitize.Text(strings.Join(strings.Fields(string(text)), ", "), mostReason)
}

// Checks are the checks in a folder, such as a *conditions.Runner.
type Checks interface {
	Scanned() bool
	Checks() []conditions.Check
	Faults() []conditions.Fault
}

// Judge returns the results of checks. Exit code 0 means no reboot, 1 requests a reboot, and any other code
// means not now. age is the time since the agent started.
func Judge(checks Checks, age time.Duration) (wanted, undecided []Finding) {
	if !checks.Scanned() {
		return nil, []Finding{{
			Source: allChecks, Message: "the folder has not answered since the agent started",
			Hint: "check the file system of the folder reboot.checks", Pending: age < lateTime,
		}}
	}
	for _, c := range checks.Checks() {
		f := Finding{Source: filepath.Base(c.Path), Message: c.Message}
		switch {
		case c.Faulty: // reported below, from faults
		case c.Answer == status.NotRunYet:
			f.Message, f.Pending = "it has not run since the agent started", true
			undecided = append(undecided, f)
		case c.Answer == status.Problem:
			wanted = append(wanted, f)
		case c.Answer != status.Passed:
			f.Hint = c.RunHint()
			undecided = append(undecided, f)
		}
	}
	for _, f := range checks.Faults() {
		undecided = append(undecided, Finding{Source: filepath.Base(f.Path), Message: f.Problem, Hint: f.Path + ": " + f.Fix})
	}
	return wanted, undecided
}
