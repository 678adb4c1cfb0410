package docker

import (
	"context"
	"fmt"
	"path/filepath"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/local"
)

// ImageFilesystems returns the filesystem of Docker's images: the folder of its storage driver or,
// if containerd stores them, of containerd's snapshotter.
func (r *Runtime) ImageFilesystems(ctx context.Context) ([]runtime.Filesystem, error) {
	const what = "list image filesystems"
	a, err := r.describe(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	folder := filepath.Join(a.root, a.driver)
	if a.containerd {
		if folder, err = r.snapshots(ctx, a); err != nil {
			return nil, fmt.Errorf("%s: %w", what, err)
		}
	}
	list, err := local.Filesystems(r.procRoot, r.name, []string{folder})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return list, nil
}
