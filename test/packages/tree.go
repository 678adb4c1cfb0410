package packages

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"hostler.io/hostler/test/lab"
	"hostler.io/hostler/test/machine/debian"
)

// Tree is a Debian that is not booted, with tools to check packages.
type Tree struct {
	tree            string
	packages, later string
}

// NewTree prepares a Tree. It finds one folder of packages at /packages, and another one at /later.
func NewTree(ctx context.Context, packages, later string, log *slog.Logger) (*Tree, error) {
	tree, err := PrepareTree(ctx, log)
	return &Tree{tree, packages, later}, err
}

// PrepareTree returns the folder of the Debian without the packages, in the same way as
// debian.PrepareTree.
func PrepareTree(ctx context.Context, log *slog.Logger) (string, error) {
	// The newest release: its lintian knows the present folders of systemd.
	return debian.PrepareTree(ctx, debian.Trixie, []string{
		"systemd", "passwd", // dependencies of hostler's package
		"lintian", "man-db", "rpm", "rpmlint",
		"bash-completion", "fish", "zsh",
	}, log)
}

// enter creates a writable root of the tree, and runs a script in it.
const enter = `set -eu
mount -t tmpfs tmpfs "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay -o "lowerdir=$2,upperdir=$1/upper,workdir=$1/work" overlay "$1/root"
mkdir "$1/root/packages" "$1/root/later"
mount --bind -o ro "$3" "$1/root/packages"
mount --bind -o ro "$4" "$1/root/later"
mount -t proc proc "$1/root/proc"
mount --rbind /dev "$1/root/dev"
exec chroot "$1/root" bash -euc "$5"
`

// Run runs a bash script as root in the tree, and returns its output and errors. Afterwards its
// changes are discarded and its processes ended.
func (h *Tree) Run(ctx context.Context, script string) (string, error) {
	dir, err := os.MkdirTemp("", "hostler-packages-")
	if err != nil {
		return "", err
	}
	defer os.Remove(dir)
	cmd := exec.CommandContext(ctx, "sh", "-c", enter, "enter", dir, h.tree, h.packages, h.later, script)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8", "TZ=UTC", "DEBIAN_FRONTEND=noninteractive", "HOME=/root"}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:   syscall.CLONE_NEWPID | syscall.CLONE_NEWNET | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC,
		Unshareflags: syscall.CLONE_NEWNS,
		Pdeathsig:    syscall.SIGKILL,
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("run in %s: %w:\n%s", filepath.Base(filepath.Dir(h.tree)), err, lab.LastLines(string(out), 20))
	}
	return string(out), err
}
