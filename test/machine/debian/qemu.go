package debian

import (
	"context"
	"fmt"
	"log/slog"
	"os/exec"
	"path/filepath"

	"hostler.io/hostler/test/lab"
)

// QEMU is the emulator, in the cache: nothing of it is written to. It is Debian 13's on
// any host, and on one of Debian 12 runs by its own loader and C library: version 10.0
// boots a machine with a quarter less of the host's processors than 7.2 does.
type QEMU struct {
	Tree string // its packages, unpacked
}

// PrepareQEMU gets it, unless the cache has it. It needs the network only then. It is
// safe for concurrent use, also by several processes.
func PrepareQEMU(ctx context.Context, log *slog.Logger) (QEMU, error) {
	r, err := recipeFor(Trixie)
	if err != nil {
		return QEMU{}, err
	}
	cache, err := lab.CacheDir()
	if err != nil {
		return QEMU{}, err
	}
	packages := []string{"qemu-system-x86", "qemu-utils"}
	dir := filepath.Join(cache, "machine", "qemu-"+r.digest(packages))
	err = lab.MakeOnce(dir, func(temporary string) error {
		log.Info("fetching packages", "packages", packages, "release", string(r.release), "cache", dir)
		tools, err := lab.Fetch(ctx, lab.FetchOptions{Kits: []lab.Kit{lab.KitBootstrap}}, log)
		if err != nil {
			return err
		}
		return r.bootstrap(ctx, tools.Bootstrap, temporary, filepath.Join(temporary, "tree"), packages, "--variant=extract")
	})
	if err != nil {
		return QEMU{}, fmt.Errorf("fetch QEMU: %w", err)
	}
	return QEMU{filepath.Join(dir, "tree")}, nil
}

// Command runs one of its programs.
func (q QEMU) Command(ctx context.Context, program string, args ...string) *exec.Cmd {
	libraries := filepath.Join(q.Tree, "usr/lib/x86_64-linux-gnu")
	return exec.CommandContext(ctx, filepath.Join(q.Tree, "usr/lib64/ld-linux-x86-64.so.2"),
		append([]string{"--library-path", libraries, filepath.Join(q.Tree, "usr/bin", program)}, args...)...)
}

// Data are the folders where it looks for its firmware.
func (q QEMU) Data() []string {
	return []string{filepath.Join(q.Tree, "usr/share/qemu"), filepath.Join(q.Tree, "usr/share/seabios")}
}
