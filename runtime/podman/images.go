package podman

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"hostler.io/hostler/internal/sanitize"
	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/docker/engine"
	"hostler.io/hostler/runtime/local"
)

// labelPrefix begins the labels of images that are kept. Others are dropped.
const labelPrefix = "hostler.io/"

// image is an image in Podman's list.
type image struct {
	ID                    string `json:"Id"`
	RepoTags, RepoDigests []string
	Names                 []string // names that were set; RepoDigests also has others
	Size                  int64
	Labels                map[string]string
	ReadOnly              bool // in an additional store, which belongs to another client
}

// Images lists all images in one call, or in none if nothing has changed. Intermediate images of a
// build are listed only after the final image was removed. Podman does not report when an image was
// stored.
func (r *Runtime) Images(ctx context.Context) ([]runtime.Image, error) {
	if err := r.check(ctx, "list images"); err != nil {
		return nil, err
	}
	images, err := r.answers.images.get(ctx, &r.changes, func(ctx context.Context) ([]runtime.Image, error) {
		images, err := r.queryImages(ctx)
		return sanitize.Clean(images), err
	})
	return slices.Clone(images), err
}

func (r *Runtime) queryImages(ctx context.Context) ([]runtime.Image, error) {
	const what = "list images"
	a, err := r.describe(ctx)
	if err != nil {
		return nil, err
	}
	list, err := r.listImages(ctx, what)
	if err != nil {
		return nil, err
	}
	folder := filepath.Join(a.root, a.driver+"-images")
	images := make([]runtime.Image, len(list))
	for i := range list {
		img := &list[i]
		images[i] = runtime.Image{
			Runtime: r.name, ID: img.ID, Tags: engine.Named(img.RepoTags), SizeBytes: uint64(max(img.Size, 0)), Pinned: img.ReadOnly, Labels: maps.Clone(img.Labels),
		}
		maps.DeleteFunc(images[i].Labels, func(key, _ string) bool { return !strings.HasPrefix(key, labelPrefix) })
		// Podman lists digests even for images that have none in a registry.
		if wasPulled(filepath.Join(folder, img.ID), img.ID) {
			images[i].Digests = engine.Named(img.RepoDigests)
		}
	}
	return images, nil
}

func (r *Runtime) listImages(ctx context.Context, what string) ([]image, error) {
	var list []image
	if err := r.get(ctx, "ListImages", what, "/images/json", url.Values{"all": {"false"}}, &list); err != nil {
		return nil, err
	}
	list = mergeDuplicates(list)
	return list, distinct(what, "image", list, func(img *image) string { return img.ID })
}

// mergeDuplicates merges duplicates. Podman lists an image once for each store that has it. All but
// one store belong to other clients, and a request may affect any store. So such an image counts as
// belonging to others.
func mergeDuplicates(list []image) []image {
	at := make(map[string]int, len(list))
	var once []image
	for _, img := range list {
		i, known := at[img.ID]
		if !known || !img.ReadOnly && !once[i].ReadOnly {
			at[img.ID] = len(once)
			once = append(once, img)
			continue
		}
		own := &once[i]
		own.ReadOnly, own.Size = true, max(own.Size, img.Size)
		own.RepoTags, own.RepoDigests, own.Names = union(own.RepoTags, img.RepoTags), union(own.RepoDigests, img.RepoDigests), union(own.Names, img.Names)
	}
	return once
}

// union appends the elements of b that a lacks.
func union(a, b []string) []string {
	for _, name := range b {
		if !slices.Contains(a, name) {
			a = append(a, name)
		}
	}
	return a
}

// wasPulled reports whether an image came from a registry, judging by Podman's files. Registries
// have compressed layers, so the layers' digests in the manifest differ from those in the
// configuration. Locally built images have no compressed layers. A loaded OCI archive may have
// some, but has no manifest list, and never the media type of Docker. If unknown, the image counts
// as not pulled.
func wasPulled(folder, id string) bool {
	var manifest struct {
		MediaType string
		Layers    []struct{ Digest string }
	}
	var config struct {
		RootFS struct {
			DiffIDs []string `json:"diff_ids"`
		} `json:"rootfs"`
	}
	// containers/storage encodes the names of big data that are not valid file names this way, see
	// its images.go.
	configFile := "=" + base64.StdEncoding.EncodeToString([]byte(digestPrefix+id))
	if !local.ReadRecord(filepath.Join(folder, "manifest"), &manifest) || !local.ReadRecord(filepath.Join(folder, configFile), &config) {
		return false
	}
	compressed := slices.ContainsFunc(manifest.Layers, func(layer struct{ Digest string }) bool {
		return !slices.Contains(config.RootFS.DiffIDs, layer.Digest)
	})
	return compressed && (manifest.MediaType == dockerManifest || fromList(folder))
}

// dockerManifest is the media type of the manifest of a Docker image.
const dockerManifest = "application/vnd.docker.distribution.manifest.v2+json"

// fromList reports whether an image was chosen from a manifest list, which is stored beside its own
// manifest.
func fromList(folder string) bool {
	entries, _ := os.ReadDir(folder) // fails if the image was removed
	for _, e := range entries {
		encoded, _ := strings.CutPrefix(e.Name(), "=")
		var list struct{ Manifests []json.RawMessage }
		if name, err := base64.StdEncoding.DecodeString(encoded); err == nil && strings.HasPrefix(string(name), "manifest-") &&
			local.ReadRecord(filepath.Join(folder, e.Name()), &list) && len(list.Manifests) > 0 {
			return true
		}
	}
	return false
}
