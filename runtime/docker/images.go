package docker

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/moby/moby/api/types/image"
	"github.com/moby/moby/client"

	"hostler.io/hostler/internal/sanitize"
	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/docker/engine"
)

const (
	// labelPrefix begins the labels of images that are kept. Others are dropped.
	labelPrefix = "hostler.io/"
	// identityVersion is the first API version that reports the origin of an image in containerd's
	// store.
	identityVersion = "1.54"
)

// Images lists all images in one call. Intermediate images of a build are listed only after the
// final image was removed. Docker does not report when an image was stored.
func (r *Runtime) Images(ctx context.Context) ([]runtime.Image, error) {
	const what = "list images"
	a, err := r.describe(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	resp, err := engine.Get(ctx, r.conn, "ImageList", what, r.timeouts.Query, func(ctx context.Context, c *client.Client) (client.ImageListResult, error) {
		return c.ImageList(ctx, client.ImageListOptions{Identity: a.containerd && supports(c, identityVersion)})
	})
	if err != nil {
		return nil, err
	}
	images := make([]runtime.Image, len(resp.Items))
	seen := make(map[string]bool, len(images))
	for i := range resp.Items {
		img := &resp.Items[i]
		switch {
		case img.ID == "":
			return nil, fmt.Errorf("%s: %w: an image has no ID", what, runtime.ErrInvalidAnswer)
		case seen[img.ID]:
			return nil, fmt.Errorf("%s: %w: image %q is listed twice", what, runtime.ErrInvalidAnswer, img.ID)
		}
		seen[img.ID] = true
		images[i] = r.image(img, a.containerd)
	}
	return sanitize.Clean(images), nil
}

// image translates one image. In Docker's own store, a digest means that the image was pulled or
// pushed, so that a registry has it. containerd's store gives every image a digest, even if it was
// built here. There, only the origin that Docker reports counts.
func (r *Runtime) image(img *image.Summary, ofContainerd bool) runtime.Image {
	converted := runtime.Image{
		Runtime: r.name, ID: img.ID,
		Tags:      engine.Named(img.RepoTags),
		Digests:   engine.Named(img.RepoDigests),
		SizeBytes: uint64(max(img.Size, 0)),
		Labels:    ownLabels(img.Labels),
	}
	if ofContainerd && !wasPulled(img) {
		converted.Digests = nil
	}
	return converted
}

// wasPulled reports whether, according to Docker, the image or one of its platforms was pulled from
// a registry or pushed to one.
func wasPulled(img *image.Summary) bool {
	return slices.ContainsFunc(img.Manifests, func(m image.ManifestSummary) bool {
		return m.ImageData != nil && m.ImageData.Identity != nil && len(m.ImageData.Identity.Pull) > 0
	})
}

func ownLabels(labels map[string]string) map[string]string {
	var own map[string]string
	for key, value := range labels {
		if strings.HasPrefix(key, labelPrefix) {
			if own == nil {
				own = make(map[string]string)
			}
			own[key] = value
		}
	}
	return own
}
