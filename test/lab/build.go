package lab

import (
	"context"
	"fmt"
	"os"
	"os/exec"
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
