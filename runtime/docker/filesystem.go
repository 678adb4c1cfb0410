package docker

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/local"
)

// ImageFilesystems names where Docker keeps images: the folder of its storage driver,
// or, where containerd keeps them, that of containerd's snapshotter.
func (r *Runtime) ImageFilesystems(ctx context.Context) ([]runtime.Filesystem, error) {
	const what = "list image filesystems"
	a, err := r.describe(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	folder := filepath.Join(a.root, a.driver)
	if a.containerd {
		// Docker does not tell where containerd's own folder is. To free another
		// filesystem than that would remove images in vain.
		folder = a.snapshots()
		if _, err := os.Stat(folder); err != nil {
			return nil, fmt.Errorf("%s: containerd keeps Docker's images, and not in %s: %w", what, folder, err)
		}
	}
	list, err := local.Filesystems(r.procRoot, r.name, []string{folder})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return list, nil
}

// snapshots is where containerd has its snapshots by default: below Docker's own data
// where dockerd runs it, as the folder of its socket tells, else in its own.
func (a about) snapshots() string {
	root := "/var/lib/containerd"
	if strings.HasSuffix(a.address, "/docker/containerd/containerd.sock") {
		root = filepath.Join(a.root, "containerd", "daemon")
	}
	return filepath.Join(root, "io.containerd.snapshotter.v1."+a.driver)
}
