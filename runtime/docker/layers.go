package docker

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"hostler.io/hostler/internal/sanitize"
	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/cri/containerd"
	"hostler.io/hostler/runtime/local"
)

var _ runtime.LayerLister = (*Runtime)(nil)

// mobyNamespace is dockerd's default namespace in containerd.
const mobyNamespace = "moby"

// Layers reads the files of Docker's own image store, or calls containerd if that stores the
// images. Docker's API reports how much images share, but not with which others.
func (r *Runtime) Layers(ctx context.Context) ([]runtime.Layer, error) {
	list, err := r.Images(ctx)
	if err != nil {
		return nil, err
	}
	a, err := r.describe(ctx)
	if err != nil {
		return nil, fmt.Errorf("list layers: %w", err)
	}
	ids := make([]string, len(list))
	for i := range list {
		ids[i] = list[i].ID
	}
	if !a.containerd {
		list, err := storedLayers(r.name, filepath.Join(a.root, "image", a.driver), ids)
		return sanitize.Clean(list), err
	}
	ctx, cancel := context.WithTimeout(ctx, r.timeouts.Query)
	defer cancel()
	conn, err := r.dialContainerd(a)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	services := &containerd.Services{
		Conn: conn, Images: r.Images,
		Call: func(ctx context.Context, _, what string, rpc func(context.Context) error) error {
			if err := rpc(ctx); err != nil {
				return fmt.Errorf("%s: %w", what, err)
			}
			return nil
		},
	}
	layers, err := services.Layers(ctx, mobyNamespace, r.name, ids)
	return sanitize.Clean(layers), err
}

// storedLayers reads the layers of images from the folder of Docker's image configurations and
// layers. A layer's name is the digest of its content and of all layers below it.
func storedLayers(runtimeName, folder string, ids []string) ([]runtime.Layer, error) {
	tree := local.NewLayerTree()
	layers := filepath.Join(folder, "layerdb")
	entries, err := os.ReadDir(filepath.Join(layers, "sha256"))
	if err != nil {
		return nil, fmt.Errorf("list layers: %w", err)
	}
	for _, e := range entries {
		at := filepath.Join(layers, "sha256", e.Name())
		size, err := strconv.ParseUint(smallFile(filepath.Join(at, "size")), 10, 64)
		if err == nil { // else the image is being created or removed
			tree.Add("sha256:"+e.Name(), smallFile(filepath.Join(at, "parent")), size, 0)
		}
	}
	for _, id := range ids {
		tree.HoldByImage(topLayer(filepath.Join(folder, "imagedb", "content", strings.Replace(id, ":", "/", 1))), id)
	}
	containers, err := os.ReadDir(filepath.Join(layers, "mounts"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list layers: %w", err)
	}
	for _, e := range containers {
		tree.HoldByUser(smallFile(filepath.Join(layers, "mounts", e.Name(), "parent")), e.Name())
	}
	return tree.List(runtimeName), nil
}

var _ runtime.SpaceOwner = (*Runtime)(nil)

// OwnedSpace lists the folders of containers: of their writable layers, if Docker's own store is
// used, and of their logs.
func (r *Runtime) OwnedSpace(ctx context.Context) ([]runtime.Owned, error) {
	list, err := r.list(ctx)
	if err != nil {
		return nil, err
	}
	a, err := r.describe(ctx)
	if err != nil {
		return nil, fmt.Errorf("list owned space: %w", err)
	}
	var owned []runtime.Owned
	for i := range list {
		c := &list[i]
		folders := []string{filepath.Join(a.root, "containers", c.ID)}
		if mount := smallFile(filepath.Join(a.root, "image", a.driver, "layerdb", "mounts", c.ID, "mount-id")); mount != "" {
			folders = append(folders, local.LayerFolder(a.root, a.driver, mount))
		}
		for _, folder := range folders {
			owned = append(owned, runtime.Owned{Folder: folder, Container: c.ID, By: "container " + name(c)})
		}
	}
	return sanitize.Clean(owned), nil
}

// smallFile returns the content of a file, or "" if it does not exist.
func smallFile(path string) string {
	text, _ := os.ReadFile(path)
	return string(bytes.TrimSpace(text))
}

// topLayer returns the chain ID of an image's top layer; "" if its configuration cannot be read:
// https://github.com/opencontainers/image-spec/blob/main/config.md#layer-chainid.
func topLayer(config string) string {
	var image struct {
		RootFS struct {
			DiffIDs []string `json:"diff_ids"`
		} `json:"rootfs"`
	}
	if !local.ReadRecord(config, &image) {
		return ""
	}
	chain := ""
	for _, diff := range image.RootFS.DiffIDs {
		if chain == "" {
			chain = diff
			continue
		}
		sum := sha256.Sum256([]byte(chain + " " + diff))
		chain = "sha256:" + hex.EncodeToString(sum[:])
	}
	return chain
}
