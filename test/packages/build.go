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

// Version is the version of the packages that tests build. It is between two releases, which is the
// hardest version to format and to sort.
const Version = "0.1.0-dev.42+g0123456789ab"

// LaterVersion is the version of Later's rpm.
const LaterVersion = "0.1.0"

// date is the date of their commit, in 2023.
const date = "1700000000"

// Build copies the sources from root to dir, builds the packages there, as `make package` does in a
// clone, and returns their folder. environ has additional environment variables. The modes of the
// copied files are those of a clone with that umask.
func Build(ctx context.Context, root, dir, umask string, environ ...string) (string, error) {
	return makeIn(ctx, root, dir, umask, "package", "packages", environ)
}

// Image is Build for `make image`. It returns the folder of the image.
func Image(ctx context.Context, root, dir, umask string, environ ...string) (string, error) {
	return makeIn(ctx, root, dir, umask, "image", "image", environ)
}

// makeIn runs a target in a copy of the sources, and returns its folder in dist.
func makeIn(ctx context.Context, root, dir, umask, target, folder string, environ []string) (string, error) {
	// Files that are not ignored are those of a commit.
	list, err := output(ctx, root, nil, "git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	var there []string // without files that are removed, but still in the index
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
	// Variables that make passes to another make override the environment.
	cmd.Env = append(append(os.Environ(), "MAKEFLAGS=", "VERSION="+Version, "SOURCE_DATE_EPOCH="+date), environ...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("make %s: %w:\n%s", target, err, lab.LastLines(string(out), 20))
	}
	return filepath.Join(dir, "dist", folder), nil
}

// Later builds the rpm of a later version in the folder of a Build. The last line of its
// hostler.yaml is different. It returns the folder of that rpm.
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

// output runs a program in a folder and returns its output.
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
