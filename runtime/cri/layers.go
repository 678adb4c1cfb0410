package cri

import (
	"context"
	"fmt"

	"hostler.io/hostler/internal/sanitize"
	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/cri/containerd"
	"hostler.io/hostler/runtime/local"
)

var _ runtime.LayerLister = (*Runtime)(nil)

// Layers lists the layers of images, from containerd's services or from CRI-O's files. It returns
// runtime.ErrUnsupported for other runtimes.
func (r *Runtime) Layers(ctx context.Context) ([]runtime.Layer, error) {
	if a, known := r.fresh(); known && a.name == "cri-o" {
		root, driver, err := r.storage(ctx)
		if err != nil {
			return nil, err
		}
		list, err := local.StorageLayers(r.name, root, driver)
		return sanitize.Clean(list), err
	}
	if !r.mayBeContainerd() {
		return nil, fmt.Errorf("list layers: %w: the runtime is neither containerd nor CRI-O", runtime.ErrUnsupported)
	}
	list, err := r.Images(ctx)
	if err != nil {
		return nil, err
	}
	ids := make([]string, len(list))
	for i := range list {
		ids[i] = list[i].ID
	}
	layers, err := r.containerd().Layers(ctx, containerd.CRINamespace, r.name, ids)
	return sanitize.Clean(layers), err
}
