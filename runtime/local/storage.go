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
// CRI-O use. root is its folder; driver is part of the names of its subfolders.
func StorageLayers(runtimeName, root, driver string) ([]runtime.Layer, error) {
	var layers, temporary []struct {
		ID, Parent string
		Size       int64 `json:"diff-size"` // 0 if unknown; -1 in some versions
	}
	var images []struct {
		ID, Layer string
		Mapped    []string `json:"mapped-layers"`
	}
	for path, into := range map[string]any{
		"layers/layers.json": &layers, "layers/volatile-layers.json": &temporary, "images/images.json": &images,
	} {
		if err := readStore(filepath.Join(root, driver+"-"+path), into); err != nil {
			return nil, fmt.Errorf("list layers: %w", err)
		}
	}
	containers, err := storedContainers(root, driver)
	if err != nil {
		return nil, fmt.Errorf("list layers: %w", err)
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
	for _, c := range containers {
		tree.HoldByUser(c.Layer, c.ID)
	}
	return tree.List(runtimeName), nil
}

// StorageSpace lists the folders of containers in such a store: their writable layers and logs.
func StorageSpace(root, driver string) ([]runtime.Owned, error) {
	containers, err := storedContainers(root, driver)
	if err != nil {
		return nil, fmt.Errorf("list folders of containers: %w", err)
	}
	var owned []runtime.Owned
	for _, c := range containers {
		for _, folder := range []string{LayerFolder(root, driver, c.Layer), filepath.Join(root, driver+"-containers", c.ID)} {
			owned = append(owned, runtime.Owned{Folder: folder, Container: c.ID, By: "container " + c.ID})
		}
	}
	return owned, nil
}

// LayerFolder returns the folder of a layer, in the store of Docker or of
// github.com/containers/storage.
func LayerFolder(root, driver, layer string) string {
	switch driver {
	case "vfs":
		return filepath.Join(root, driver, "dir", layer)
	case "btrfs":
		return filepath.Join(root, driver, "subvolumes", layer)
	}
	return filepath.Join(root, driver, layer)
}

// storedContainer is a container in such a store, with its writable layer.
type storedContainer struct{ ID, Layer string }

// storedContainers returns all containers of a store, including those that are removed at boot.
func storedContainers(root, driver string) ([]storedContainer, error) {
	var containers, volatile []storedContainer
	for name, into := range map[string]any{"containers.json": &containers, "volatile-containers.json": &volatile} {
		if err := readStore(filepath.Join(root, driver+"-containers", name), into); err != nil {
			return nil, err
		}
	}
	return append(containers, volatile...), nil
}

// readStore reads a list of a store. A missing list is empty.
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
