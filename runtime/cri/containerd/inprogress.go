package containerd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/containerd/containerd/api/services/content/v1"
	"github.com/containerd/containerd/api/services/leases/v1"
	"github.com/containerd/containerd/api/services/snapshots/v1"

	"hostler.io/hostler/runtime"
)

// labelExpires is on the leases of work in progress. Such a lease is deleted when the work ends, or
// expires at this time if the client died.
const labelExpires = "containerd.io/gc.expire"

// imagesInProgress lists images that are being pulled, imported, unpacked or built. Such work has a
// lease that expires, to which containerd adds all content that the work uses, even existing
// content. Leases that do not expire, such as those of sandboxes and build caches, are ignored.
func (s *Services) imagesInProgress(ctx context.Context) ([]runtime.ImageUser, error) {
	var resp *leases.ListResponse
	err := s.Call(ctx, "containerd.Leases.List", "list leases", func(ctx context.Context) (err error) {
		resp, err = leases.NewLeasesClient(s.Conn).List(inNamespace(ctx, CRINamespace), &leases.ListRequest{Filters: []string{present(labelExpires)}})
		return err
	})
	if err != nil {
		return nil, err
	}
	var users []runtime.ImageUser
	for _, lease := range resp.GetLeases() {
		ends, err := time.Parse(time.RFC3339, lease.GetLabels()[labelExpires])
		if err != nil || time.Now().After(ends) {
			continue
		}
		held, err := s.heldBy(ctx, lease)
		if err != nil {
			return nil, err
		}
		users = append(users, held...)
	}
	return users, nil
}

// heldBy lists the images that a lease protects.
func (s *Services) heldBy(ctx context.Context, lease *leases.Lease) ([]runtime.ImageUser, error) {
	var resp *leases.ListResourcesResponse
	err := s.Call(ctx, "containerd.Leases.ListResources", fmt.Sprintf("list resources of lease %q", lease.GetID()), func(ctx context.Context) (err error) {
		resp, err = leases.NewLeasesClient(s.Conn).ListResources(inNamespace(ctx, CRINamespace), &leases.ListResourcesRequest{ID: lease.GetID()})
		return unlessGone(err) // the work has ended
	})
	if err != nil {
		return nil, err
	}
	began := fmt.Sprintf("started at %s, lease %s", lease.GetCreatedAt().AsTime().UTC().Format(time.RFC3339), lease.GetID())
	var users []runtime.ImageUser
	use := func(what string, images ...string) {
		for _, image := range images {
			users = append(users, runtime.ImageUser{Image: image, By: what + " that " + began})
		}
	}
	unpacksTo := ""
	for _, resource := range resp.GetResources() {
		kind, id := resource.GetType(), resource.GetID()
		snapshotter, isSnapshot := strings.CutPrefix(kind, "snapshots/")
		switch {
		case kind == "content":
			// An image's ID is the digest of its configuration, which is content like its manifest.
			// Layers are content, too, but no image has the digest of a layer as its ID.
			use("a pull or a build", id)
		case isSnapshot && strings.HasPrefix(id, "extract-"):
			unpacksTo = snapshotter
		case isSnapshot && !strings.HasPrefix(id, "sha256:"): // not a layer
			images, err := s.below(ctx, snapshotter, id)
			if err != nil {
				return nil, err
			}
			use("a container", images...)
		}
	}
	if len(users) > 0 || unpacksTo == "" {
		return users, nil
	}
	// `ctr images import` unpacks under a separate lease that names only layers. It may unpack any
	// image that is not unpacked yet.
	ids, err := s.notUnpacked(ctx, unpacksTo)
	use("an unpack", ids...)
	return users, err
}

// below lists the IDs of the images on which a writable snapshot is based. A writable snapshot
// under a lease belongs to a container that is being created, or to a step of a build. No list
// shows these yet.
func (s *Services) below(ctx context.Context, snapshotter, key string) ([]string, error) {
	if snapshotter == "" || key == "" {
		return nil, nil
	}
	var resp *snapshots.StatSnapshotResponse
	err := s.Call(ctx, "containerd.Snapshots.Stat", fmt.Sprintf("stat snapshot %q", key), func(ctx context.Context) (err error) {
		resp, err = snapshots.NewSnapshotsClient(s.Conn).Stat(inNamespace(ctx, CRINamespace), &snapshots.StatSnapshotRequest{Snapshotter: snapshotter, Key: key})
		return unlessGone(err)
	})
	parent := resp.GetInfo().GetParent()
	if err != nil || parent == "" {
		return nil, err
	}
	label := unpackedTo(snapshotter)
	var ids []string
	err = s.eachContent(ctx, fmt.Sprintf("%s==%q", present(label), parent), func(info *content.Info) {
		if info.GetLabels()[label] == parent {
			ids = append(ids, info.GetDigest())
		}
	})
	return ids, err
}

// unpackedTo returns the label of an image's configuration that names its snapshot. containerd sets
// it when the snapshot is complete.
func unpackedTo(snapshotter string) string { return "containerd.io/gc.ref.snapshot." + snapshotter }

// notUnpacked lists the IDs of images without a snapshot.
func (s *Services) notUnpacked(ctx context.Context, snapshotter string) ([]string, error) {
	list, err := s.Images(ctx)
	if err != nil {
		return nil, err
	}
	unpacked, label := map[string]bool{}, unpackedTo(snapshotter)
	err = s.eachContent(ctx, present(label), func(info *content.Info) {
		unpacked[info.GetDigest()] = info.GetLabels()[label] != ""
	})
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, img := range list {
		if !unpacked[img.ID] {
			ids = append(ids, img.ID)
		}
	}
	return ids, nil
}

// eachContent lists content that matches a containerd filter.
func (s *Services) eachContent(ctx context.Context, filter string, each func(*content.Info)) error {
	return s.eachContentIn(ctx, CRINamespace, []string{filter}, each)
}

// eachContentIn lists content of a namespace that matches one of the filters, or all content.
func (s *Services) eachContentIn(ctx context.Context, namespace string, filters []string, each func(*content.Info)) error {
	return s.Call(ctx, "containerd.Content.List", "list content", func(ctx context.Context) error {
		stream, err := content.NewContentClient(s.Conn).List(inNamespace(ctx, namespace), &content.ListContentRequest{Filters: filters})
		for err == nil {
			var resp *content.ListContentResponse
			if resp, err = stream.Recv(); err == nil {
				for _, info := range resp.GetInfo() {
					each(info)
				}
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		return err
	})
}
