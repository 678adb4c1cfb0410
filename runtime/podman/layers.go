package podman

import (
	"context"

	"hostler.io/hostler/internal/sanitize"
	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/local"
)

var _ runtime.LayerLister = (*Runtime)(nil)

// Layers reads Podman's store: its API reports how much images share, but not with which others.
func (r *Runtime) Layers(ctx context.Context) ([]runtime.Layer, error) {
	if err := r.check(ctx, "list layers"); err != nil {
		return nil, err
	}
	a, err := r.describe(ctx)
	if err != nil {
		return nil, err
	}
	list, err := local.StorageLayers(r.name, a.root, a.driver)
	return sanitize.Clean(list), err
}

var _ runtime.SpaceOwner = (*Runtime)(nil)

// OwnedSpace lists the folders of containers in Podman's store.
func (r *Runtime) OwnedSpace(ctx context.Context) ([]runtime.Owned, error) {
	if err := r.check(ctx, "list owned space"); err != nil {
		return nil, err
	}
	a, err := r.describe(ctx)
	if err != nil {
		return nil, err
	}
	list, err := local.StorageSpace(a.root, a.driver)
	return sanitize.Clean(list), err
}
