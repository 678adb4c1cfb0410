package runtimetest

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"hostler.io/hostler/runtime"
)

var _ runtime.LayerLister = (*Fake)(nil)

// Layers lists them with the images and containers that hold them.
func (f *Fake) Layers(ctx context.Context) ([]runtime.Layer, error) {
	if !f.opts.ReportsLayers {
		return nil, fmt.Errorf("list layers: %w", runtime.ErrUnsupported)
	}
	_, finish, err := f.begin(ctx, Layers, "", 0)
	if err = finish(err); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	byID := make(map[string]*runtime.Layer)
	of := func(l Layer) *runtime.Layer {
		if byID[l.ID] == nil {
			byID[l.ID] = &runtime.Layer{Runtime: f.opts.Name, Bytes: l.Bytes, Inodes: l.Inodes}
		}
		return byID[l.ID]
	}
	for _, i := range f.images {
		for _, l := range i.layers {
			layer := of(l)
			layer.Images = append(layer.Images, i.ID)
		}
	}
	for _, c := range f.containers() {
		for _, l := range c.layers {
			layer := of(l)
			layer.Users = append(layer.Users, c.ID)
		}
	}
	layers := make([]runtime.Layer, 0, len(byID))
	for _, id := range slices.Sorted(maps.Keys(byID)) {
		layers = append(layers, *byID[id])
	}
	return layers, nil
}
