package cri

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/local"
)

// Images lists all images in one call. CRI tells neither when an image came nor
// its labels.
func (r *Runtime) Images(ctx context.Context) ([]runtime.Image, error) {
	var resp *criapi.ListImagesResponse
	err := r.call(ctx, "ListImages", "list images", r.timeouts.Query, func(ctx context.Context) (err error) {
		resp, err = r.image.ListImages(ctx, &criapi.ListImagesRequest{})
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := checkIDs("image", resp.GetImages()); err != nil {
		return nil, fmt.Errorf("list images: %w", err)
	}
	images := make([]runtime.Image, len(resp.GetImages()))
	for i, img := range resp.GetImages() {
		images[i] = runtime.Image{
			Runtime:   r.name,
			ID:        img.GetId(),
			Tags:      slices.DeleteFunc(img.GetRepoTags(), isNoName),
			Digests:   slices.DeleteFunc(img.GetRepoDigests(), isNoName),
			SizeBytes: img.GetSize(),
			Pinned:    img.GetPinned(),
		}
	}
	return images, nil
}

// isNoName recognises the "<none>:<none>" that Docker and its heirs print.
func isNoName(ref string) bool { return ref == "" || strings.Contains(ref, "<none>") }

// RemoveImage removes the image with all its names, whatever uses it: containerd
// does not refuse, even while a container runs from it. CRI-O does.
func (r *Runtime) RemoveImage(ctx context.Context, img runtime.Image) error {
	what := local.Named("remove image", img.Names()[0], "")
	if img.ID == "" {
		return fmt.Errorf("%s: no ID given", what)
	}
	// By ID every name goes; by name only that one would, in some runtimes.
	err := r.call(ctx, "RemoveImage", what, r.timeouts.Remove, func(ctx context.Context) error {
		_, err := r.image.RemoveImage(ctx, &criapi.RemoveImageRequest{Image: &criapi.ImageSpec{Image: img.ID}})
		return err
	})
	if errors.Is(err, errNotFound) {
		return nil
	}
	return err
}
