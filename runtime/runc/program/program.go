// Package program runs runc and crun for the two tasks that only they can do. They delete a dead
// container with its cgroups, its scope and its hooks, and print their version.
//
// It owns how the programs are found and run. Lists, signals and exits use the kernel instead.
package program

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"hostler.io/hostler/internal/oom"
	"hostler.io/hostler/internal/trust"
)

const (
	// outputBytes bounds how much of a program's output is kept.
	outputBytes = 4 << 10
	// pipeGrace is how long a hook that outlives the program may keep the output open.
	pipeGrace = time.Second
)

// Find returns the path of a program from PATH.
func Find(name string) (string, error) {
	path, err := trust.Command(name, searchPath())
	if err != nil {
		return "", fmt.Errorf("find %s: %w", name, err)
	}
	return path, nil
}

// searchPath returns the PATH of the programs: hostler's.
func searchPath() string { return trust.SearchPath(os.Getenv("PATH")) }

// Version returns the version that a program prints, such as "1.1.5+ds1".
func Version(ctx context.Context, path string) (string, error) {
	text, err := run(ctx, path, "--version")
	if err != nil {
		return "", err
	}
	return parseVersion(text)
}

// parseVersion parses the first line, "runc version 1.2.3" or "crun version 1.2.3".
func parseVersion(text string) (string, error) {
	line, _, _ := strings.Cut(text, "\n")
	_, version, found := strings.Cut(line, " version ")
	fields := strings.Fields(version)
	if !found || len(fields) == 0 {
		return "", fmt.Errorf("%q does not contain a version", line)
	}
	return fields[0], nil
}

// Delete removes a dead container from a state root. The program refuses a running or a missing
// container.
func Delete(ctx context.Context, path, root, id string) error {
	_, err := run(ctx, path, "--root", root, "delete", "--", id)
	return err
}

// run runs a program until ctx ends, and returns its output. The error includes the error output.
func run(ctx context.Context, path string, args ...string) (string, error) {
	if _, _, err := trust.Program(path, searchPath()); err != nil { // it may have changed since it was found
		return "", err
	}
	var out, complaint head
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append(os.Environ(), "PATH="+searchPath())
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = "/", &out, &complaint, pipeGrace
	err := cmd.Start()
	if err == nil {
		oom.Reset(oom.Proc, cmd.Process.Pid)
		err = cmd.Wait()
	}
	switch exit := (*exec.ExitError)(nil); {
	case err == nil, errors.Is(err, exec.ErrWaitDelay):
		return string(out), nil
	case ctx.Err() != nil:
		return "", fmt.Errorf("%s %s: %w", filepath.Base(path), strings.Join(args, " "), ctx.Err())
	case errors.As(err, &exit) && len(complaint) > 0:
		return "", fmt.Errorf("%s %s: %w: %q", filepath.Base(path), strings.Join(args, " "), err, strings.TrimSpace(string(complaint)))
	}
	return "", fmt.Errorf("%s %s: %w", filepath.Base(path), strings.Join(args, " "), err)
}

// head keeps the beginning of an output.
type head []byte

// Write appends p up to the limit, and never fails.
func (h *head) Write(p []byte) (int, error) {
	*h = append(*h, p[:min(len(p), outputBytes-len(*h))]...)
	return len(p), nil
}
