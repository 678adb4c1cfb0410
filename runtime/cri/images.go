package cri

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"hostler.io/hostler/internal/bounded"
	"hostler.io/hostler/internal/sanitize"
	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/cri/containerd"
	"hostler.io/hostler/runtime/local"
)

// Images lists all images in one call. CRI has neither creation times nor labels.
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
	return sanitize.Clean(images), nil
}

// isNoName recognizes "<none>:<none>", with which Docker and its successors mark a missing name.
func isNoName(ref string) bool { return ref == "" || strings.Contains(ref, "<none>") }

// RemoveImage removes the image with all its names. containerd does not refuse this even if a
// container uses the image; CRI-O does.
func (r *Runtime) RemoveImage(ctx context.Context, img runtime.Image) error {
	what := local.Named("remove image", img.Names()[0], "")
	if img.ID == "" {
		return fmt.Errorf("%s: no ID given", what)
	}
	if err := r.writeNamesInFull(ctx, img.ID); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	// By ID, all names are removed. By name, some runtimes would remove only that name.
	err := r.call(ctx, "RemoveImage", what, r.timeouts.Remove, func(ctx context.Context) error {
		_, err := r.image.RemoveImage(ctx, &criapi.RemoveImageRequest{Image: &criapi.ImageSpec{Image: img.ID}})
		return err
	})
	if errors.Is(err, errNotFound) {
		return nil
	}
	return err
}

// writeNamesInFull gives image names without a registry, as `ctr images tag` creates them, the full
// form that CRI lists. Otherwise CRI could not remove the image: it removes the listed names, does
// not find them, and the image stays.
func (r *Runtime) writeNamesInFull(ctx context.Context, id string) error {
	own, err := r.records(ctx, containerd.Equals("name", id))
	if errors.Is(err, runtime.ErrUnsupported) || err == nil && len(own) == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	records, err := r.records(ctx, containerd.Equals("target.digest", own[0].GetTarget().GetDigest()))
	if err != nil {
		return err
	}
	for _, record := range records {
		name := withRegistry(record.GetName())
		if record.GetName() == name || strings.HasPrefix(record.GetName(), "sha256:") {
			continue
		}
		renamed, err := r.containerd().Rename(ctx, record, name)
		if err != nil {
			return err
		}
		if !renamed { // CRI lists the name already, for this image or another one
			continue
		}
		if err := r.awaitName(ctx, name, id); err != nil {
			return err
		}
	}
	return nil
}

// namePause is the pause between two checks of awaitName.
const namePause = 20 * time.Millisecond

// awaitName waits until CRI has learned from containerd's event that a name belongs to an image.
func (r *Runtime) awaitName(ctx context.Context, name, id string) error {
	what := "wait for " + local.Named("image", name, "")
	ctx, cancel := context.WithTimeout(ctx, r.timeouts.Query)
	defer cancel()
	for {
		var resp *criapi.ImageStatusResponse
		err := r.call(ctx, "ImageStatus", what, r.timeouts.Query, func(ctx context.Context) (err error) {
			resp, err = r.image.ImageStatus(ctx, &criapi.ImageStatusRequest{Image: &criapi.ImageSpec{Image: name}})
			return err
		})
		if err != nil || resp.GetImage().GetId() == id {
			return err
		}
		if err := bounded.Sleep(ctx, namePause); err != nil {
			return fmt.Errorf("%s: CRI does not list it as a name of %s: %w", what, id, err)
		}
	}
}
