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

// Build makes a static binary from one of the module's packages, as `make build`
// does, in a file. The version is what main.version says, if it is not empty.
// It belongs outside the lab, where what the compiler needs can be reached.
func Build(ctx context.Context, pkg, version, file string) error {
	flags := "-s -w"
	if version != "" {
		flags += " -X main.version=" + version
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-tags", "grpcnotrace", "-ldflags", flags, "-o", file, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", pkg, err, out)
	}
	return nil
}

// Take moves programs from a folder outside, where they were built, to paths in the lab, and
// removes the folder, so that nothing of it stays behind.
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
