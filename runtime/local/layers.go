package local

import (
	"slices"

	"hostler.io/hostler/runtime"
)

// LayerTree collects the layers of a store and their users. Each layer has a parent. A user of a
// layer also uses its parents.
type LayerTree struct {
	layers  map[string]*runtime.Layer
	parents map[string]string
}

// NewLayerTree returns an empty tree.
func NewLayerTree() *LayerTree {
	return &LayerTree{layers: make(map[string]*runtime.Layer), parents: make(map[string]string)}
}

// Add adds a layer. The parent, "" if there is none, may be added later.
func (t *LayerTree) Add(key, parent string, bytes, inodes uint64) {
	t.layers[key], t.parents[key] = &runtime.Layer{Bytes: bytes, Inodes: inodes}, parent
}

// HoldByImage records that an image uses a layer.
func (t *LayerTree) HoldByImage(key, id string) {
	t.hold(key, func(l *runtime.Layer) *[]string { return &l.Images }, id)
}

// HoldByUser records that something else than an image uses a layer.
func (t *LayerTree) HoldByUser(key, user string) {
	t.hold(key, func(l *runtime.Layer) *[]string { return &l.Users }, user)
}

func (t *LayerTree) hold(key string, holders func(*runtime.Layer) *[]string, holder string) {
	for steps := 0; t.layers[key] != nil && steps <= len(t.layers); steps++ { // a damaged store may have a cycle
		if list := holders(t.layers[key]); !slices.Contains(*list, holder) {
			*list = append(*list, holder)
		}
		key = t.parents[key]
	}
}

// List returns the layers that images use. Other layers, such as those of a build, count as users
// of their parents.
func (t *LayerTree) List(runtimeName string) []runtime.Layer {
	var rest []string
	for key, l := range t.layers {
		if len(l.Images) == 0 {
			rest = append(rest, key)
		}
	}
	for _, key := range rest {
		if len(t.layers[key].Users) == 0 {
			t.HoldByUser(t.parents[key], "layer "+key)
		}
	}
	var list []runtime.Layer
	for _, l := range t.layers {
		if len(l.Images) > 0 {
			l.Runtime = runtimeName
			list = append(list, *l)
		}
	}
	return list
}
