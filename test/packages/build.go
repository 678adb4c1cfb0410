package packages

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"strings"

	"hostler.io/hostler/test/lab"
)

// Version is that of the packages that tests make: one between two releases, which is the
// hardest to write and to order.
const Version = "0.1.0-dev.42+g0123456789ab"

// LaterVersion is that of the rpm of Later.
const LaterVersion = "0.1.0"

// date is that of their commit, in 2023.
const date = "1700000000"

// Build copies the sources from root to dir and makes the packages there, as `make package`
// does in a clone, with more in its environment, and returns the folder of the packages.
// The mode of what the copy holds is as a clone with that umask has it.
func Build(ctx context.Context, root, dir, umask string, environ ...string) (string, error) {
	return makeIn(ctx, root, dir, umask, "package", "packages", environ)
}

// Image is Build for `make image`; it returns the folder of the image.
func Image(ctx context.Context, root, dir, umask string, environ ...string) (string, error) {
	return makeIn(ctx, root, dir, umask, "image", "image", environ)
}

// makeIn makes a target in a copy of the sources, and returns its folder in dist.
func makeIn(ctx context.Context, root, dir, umask, target, folder string, environ []string) (string, error) {
	// What is not ignored is what a commit would have.
	list, err := output(ctx, root, nil, "git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	var there []string // and not one that is removed, and not yet from the index
	for name := range strings.SplitSeq(strings.TrimRight(string(list), "\x00"), "\x00") {
		if _, err := os.Lstat(filepath.Join(root, name)); err == nil {
			there = append(there, name)
		}
	}
	archive, err := output(ctx, root, []byte(strings.Join(there, "\x00")), "tar", "--create", "--null", "--files-from=-")
	if err != nil {
		return "", err
	}
	script := "umask " + umask + " && tar --extract --no-same-permissions --touch && exec make " + target
	cmd := exec.CommandContext(ctx, "sh", "-c", script)
	cmd.Dir, cmd.Stdin = dir, bytes.NewReader(archive)
	// What make passes on to a make that it runs stands above the environment.
	cmd.Env = append(append(os.Environ(), "MAKEFLAGS=", "VERSION="+Version, "SOURCE_DATE_EPOCH="+date), environ...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("make %s: %w:\n%s", target, err, lab.LastLines(string(out), 20))
	}
	return filepath.Join(dir, "dist", folder), nil
}

// Later makes the rpm again in the folder of a Build, as a later version brings it: one whose
// hostler.yaml ends with another line. It returns the folder of that rpm.
func Later(ctx context.Context, dir, line string) (string, error) {
	file, err := os.OpenFile(filepath.Join(dir, "packaging", "hostler.yaml"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return "", err
	}
	_, err = fmt.Fprintln(file, line)
	if err := errors.Join(err, file.Close()); err != nil {
		return "", err
	}
	to := filepath.Join(dir, "dist", "later")
	if err := os.MkdirAll(to, 0o755); err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, "go", "tool", "-modfile=packaging/tools/go.mod", "nfpm", "package", "-f", "packaging/nfpm.yaml", "-p", "rpm", "-t", to)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=-buildvcs=false", "ARCH="+goruntime.GOARCH, "VERSION="+LaterVersion, "SOURCE_DATE_EPOCH="+date)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("make a later rpm: %w:\n%s", err, lab.LastLines(string(out), 20))
	}
	return to, nil
}

// output is what a program prints that runs in a folder.
func output(ctx context.Context, dir string, in []byte, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Stdin = dir, bytes.NewReader(in)
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = fmt.Errorf("%w: %s", err, lab.LastLines(string(exit.Stderr), 5))
	}
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", name, args[0], err)
	}
	return out, nil
}
