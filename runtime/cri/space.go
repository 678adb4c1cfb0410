package cri

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"hostler.io/hostler/internal/sanitize"
	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/local"
)

var _ runtime.SpaceOwner = (*Runtime)(nil)

// OwnedSpace returns what containerd reports, or what is in CRI-O's files. It returns
// runtime.ErrUnsupported for other runtimes.
func (r *Runtime) OwnedSpace(ctx context.Context) ([]runtime.Owned, error) {
	if a, known := r.fresh(); known && a.name == "cri-o" {
		root, driver, err := r.storage(ctx)
		if err != nil {
			return nil, err
		}
		list, err := local.StorageSpace(root, driver)
		return sanitize.Clean(list), err
	}
	if !r.mayBeContainerd() {
		return nil, fmt.Errorf("list owned space: %w: the runtime is neither containerd nor CRI-O", runtime.ErrUnsupported)
	}
	list, err := r.containerd().OwnedSpace(ctx)
	return sanitize.Clean(list), err
}

// storage returns the folder and the driver of CRI-O's store. CRI-O reports the folder
// DRIVER-images inside it as the place of images.
func (r *Runtime) storage(ctx context.Context) (root, driver string, err error) {
	list, err := r.ImageFilesystems(ctx)
	if err != nil {
		return "", "", err
	}
	if len(list) == 0 {
		return "", "", fmt.Errorf("find CRI-O's store: %w: no image filesystem reported", runtime.ErrUnsupported)
	}
	root, name := filepath.Split(list[0].Path)
	driver, found := strings.CutSuffix(name, "-images")
	if !found {
		return "", "", fmt.Errorf("find CRI-O's store: %w: images are in %s", runtime.ErrUnsupported, list[0].Path)
	}
	return filepath.Clean(root), driver, nil
}
