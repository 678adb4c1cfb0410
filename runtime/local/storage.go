package local

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"hostler.io/hostler/runtime"
)

// StorageLayers reads the layers of a store of github.com/containers/storage, which Podman and
// CRI-O use: the folder is its root, and the driver the one that its folders are named after.
func StorageLayers(runtimeName, root, driver string) ([]runtime.Layer, error) {
	var layers, temporary []struct {
		ID, Parent string
		Size       int64 `json:"diff-size"` // 0 where it is not known; -1 in some versions
	}
	var images []struct {
		ID, Layer string
		Mapped    []string `json:"mapped-layers"`
	}
	var containers, passing []struct{ ID, Layer string }
	for path, into := range map[string]any{
		"layers/layers.json": &layers, "layers/volatile-layers.json": &temporary, "images/images.json": &images,
		"containers/containers.json": &containers, "containers/volatile-containers.json": &passing,
	} {
		if err := readStore(filepath.Join(root, driver+"-"+path), into); err != nil {
			return nil, fmt.Errorf("list layers: %w", err)
		}
	}
	tree := NewLayerTree()
	for _, l := range append(layers, temporary...) {
		tree.Add(l.ID, l.Parent, uint64(max(l.Size, 0)), 0)
	}
	for _, img := range images {
		for _, layer := range append(img.Mapped, img.Layer) {
			tree.HoldByImage(layer, img.ID)
		}
	}
	for _, c := range append(containers, passing...) {
		tree.HoldByUser(c.Layer, c.ID)
	}
	return tree.List(runtimeName), nil
}

// StorageSpace lists the folders of containers in such a store: what they write, and their logs.
func StorageSpace(root, driver string) ([]runtime.Owned, error) {
	var containers, passing []struct{ ID, Layer string }
	for path, into := range map[string]any{"containers.json": &containers, "volatile-containers.json": &passing} {
		if err := readStore(filepath.Join(root, driver+"-containers", path), into); err != nil {
			return nil, fmt.Errorf("list folders of containers: %w", err)
		}
	}
	var owned []runtime.Owned
	for _, c := range append(containers, passing...) {
		for _, folder := range []string{filepath.Join(root, driver, c.Layer), filepath.Join(root, driver+"-containers", c.ID)} {
			owned = append(owned, runtime.Owned{Folder: folder, Container: c.ID, By: "container " + c.ID})
		}
	}
	return owned, nil
}

// readStore reads one list of a store; a list that is not there has no entries.
func readStore(path string, into any) error {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(text) == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	return nil
}
