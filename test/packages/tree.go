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

// Tree is a Debian that does not run, with what looks at packages.
type Tree struct {
	tree            string
	packages, later string
}

// NewTree prepares one that finds a folder of packages in /packages, and another one in
// /later.
func NewTree(ctx context.Context, packages, later string, log *slog.Logger) (*Tree, error) {
	// The newest, whose lintian knows best what has become of systemd's folders.
	tree, err := debian.PrepareTree(ctx, debian.Trixie, []string{
		"systemd", "passwd", // what hostler's package needs
		"lintian", "man-db", "rpm", "rpmlint",
		"bash-completion", "fish", "zsh",
	}, log)
	return &Tree{tree, packages, later}, err
}

// enter makes a root of the tree that may be written to, and runs a script in it.
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

// Run runs a script of bash as root in it, and returns what it prints and complains. What
// it does to the files is gone afterwards, and what it leaves running is ended.
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
