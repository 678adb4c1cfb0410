package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

// BuildFlags returns the flags with which `make build` compiles packages. With others, go compiles
// all of them once more.
func BuildFlags() []string { return []string{"-trimpath", "-tags", "grpcnotrace"} }

// BuildEnviron returns the environment of the compiler. With a larger heap, it needs a fifth less time
// of processors.
func BuildEnviron() []string { return append(os.Environ(), "GOGC=400") }

// Build builds a static binary from a package of the module into a file, as `make build` does. If
// version is not empty, it sets main.version. Call it outside the lab, where the compiler can
// download modules.
func Build(ctx context.Context, pkg, version, file string) error {
	flags := "-s -w"
	if version != "" {
		flags += " -X main.version=" + version
	}
	args := append(append([]string{"build"}, BuildFlags()...), "-ldflags", flags, "-o", file, pkg)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = append(BuildEnviron(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", pkg, err, out)
	}
	return nil
}

// Take moves programs from a folder outside the lab, where they were built, to paths in the lab. It
// removes the folder, so that nothing stays outside.
func Take(folder string, programs ...string) error {
	for _, to := range programs {
		if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), take(filepath.Join(folder, filepath.Base(to)), to)); err != nil {
			return fmt.Errorf("take %s into the lab: %w", to, err)
		}
	}
	return os.RemoveAll(folder)
}

func take(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
