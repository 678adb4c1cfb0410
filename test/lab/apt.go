package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// download gets packages and the libraries they need with apt, and unpacks them below root, which
// exists. It updates an outdated or empty package list once.
func download(ctx context.Context, packages []string, dir, root string) error {
	err := tryDownload(ctx, packages, dir)
	if err != nil {
		// If one of many sources cannot be reached, the update fails, but that may not matter.
		_, updateErr := run(ctx, dir, "apt-get", "update", "-q")
		if err = tryDownload(ctx, packages, dir); err != nil {
			return fmt.Errorf("%w: are the package sources reachable?", errors.Join(err, updateErr))
		}
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err != nil {
		return err
	}
	for _, file := range files {
		if _, err := run(ctx, dir, "dpkg-deb", "-x", file, root); err != nil {
			return err
		}
	}
	return nil
}

func tryDownload(ctx context.Context, packages []string, dir string) error {
	closure, err := withLibraries(ctx, packages, dir)
	if err != nil {
		return err
	}
	// apt's sandbox user may not enter a private cache folder. apt then downloads as root and prints a
	// warning, which this option prevents.
	_, err = run(ctx, dir, "apt-get", append([]string{"download", "-q", "-o", "APT::Sandbox::User=root"}, closure...)...)
	return err
}

// withLibraries adds the library packages that the packages depend on. It adds all of them, even
// installed ones, because systemd's programs and libraries must be of one build. The C library
// stays the host's: it must match the host's program loader.
func withLibraries(ctx context.Context, packages []string, dir string) ([]string, error) {
	args := []string{"depends", "--recurse", "--no-recommends", "--no-suggests", "--no-conflicts", "--no-breaks", "--no-replaces", "--no-enhances"}
	out, err := run(ctx, dir, "apt-cache", append(args, packages...)...)
	if err != nil {
		return nil, err
	}
	closure := slices.Clone(packages)
	for line := range strings.Lines(out) {
		name := strings.TrimRight(line, "\n")
		if !strings.HasPrefix(name, "lib") || strings.Contains(name, ":") {
			continue // indented, virtual, foreign, or not a library
		}
		if name == "libc6" || strings.HasPrefix(name, "libgcc") || strings.HasPrefix(name, "libelogind") ||
			strings.HasPrefix(name, "libdebian-installer") {
			continue
		}
		if !slices.Contains(closure, name) {
			closure = append(closure, name)
		}
	}
	return closure, nil
}

// run runs a program in a folder and returns its standard output; an error contains the end of its
// standard error.
func run(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive")
	var out, complaint strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", name, args[0], err, LastLines(complaint.String(), 5))
	}
	return out.String(), nil
}

// LastLines returns the last n lines of a text.
func LastLines(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
