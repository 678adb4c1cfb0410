package debian

import (
	"context"
	"log/slog"
	"os/exec"
	"path/filepath"
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
	tree, err := r.tree(ctx, "qemu", []string{"qemu-system-x86", "qemu-utils"}, "extract", log)
	return QEMU{tree}, err
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
