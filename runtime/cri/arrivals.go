package cri

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

// labelExpires is on the leases of work that is under way: they end with it, or at
// this time if whoever did it died.
const labelExpires = "containerd.io/gc.expire"

// arrivals are images that somebody is pulling, importing, unpacking or building.
// Whoever does that holds a lease with an end, to which containerd adds all that
// it touches, what was there before included. Leases without an end, such as those
// of sandboxes and of build caches, are no sign of work.
func (r *Runtime) arrivals(ctx context.Context) ([]runtime.ImageUser, error) {
	var resp *leases.ListResponse
	err := r.call(ctx, "containerd.Leases.List", "list leases", r.timeouts.Query, func(ctx context.Context) (err error) {
		resp, err = leases.NewLeasesClient(r.conn).List(inNamespace(ctx, criNamespace), &leases.ListRequest{Filters: []string{present(labelExpires)}})
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
		held, err := r.heldBy(ctx, lease)
		if err != nil {
			return nil, err
		}
		users = append(users, held...)
	}
	return users, nil
}

// heldBy lists the images that a lease is about.
func (r *Runtime) heldBy(ctx context.Context, lease *leases.Lease) ([]runtime.ImageUser, error) {
	var resp *leases.ListResourcesResponse
	err := r.call(ctx, "containerd.Leases.ListResources", named("list resources of lease", lease.GetID(), ""), r.timeouts.Query, func(ctx context.Context) (err error) {
		resp, err = leases.NewLeasesClient(r.conn).ListResources(inNamespace(ctx, criNamespace), &leases.ListResourcesRequest{ID: lease.GetID()})
		return err
	})
	if errors.Is(err, errNotFound) {
		return nil, nil // it is done
	}
	if err != nil {
		return nil, err
	}
	began := fmt.Sprintf("began at %s, lease %s", lease.GetCreatedAt().AsTime().UTC().Format(time.RFC3339), lease.GetID())
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
			// An image's ID is the digest of its configuration, which is content like
			// its manifest; layers are, too, and no image goes by theirs.
			use("a pull or a build", id)
		case isSnapshot && strings.HasPrefix(id, "extract-"):
			unpacksTo = snapshotter
		case isSnapshot && !strings.HasPrefix(id, "sha256:"): // which would be a layer
			images, err := r.below(ctx, snapshotter, id)
			if err != nil {
				return nil, err
			}
			use("a container", images...)
		}
	}
	if len(users) > 0 || unpacksTo == "" {
		return users, nil
	}
	// `ctr images import` unpacks under a lease of its own, which names layers
	// alone. It may be any image that is not unpacked yet.
	ids, err := r.notUnpacked(ctx, unpacksTo)
	use("an unpack", ids...)
	return users, err
}

// below lists the IDs of the images that a snapshot for writing is made on. One
// under a lease belongs to a container, or a step of a build, that is being made
// and that no list shows yet.
func (r *Runtime) below(ctx context.Context, snapshotter, key string) ([]string, error) {
	var resp *snapshots.StatSnapshotResponse
	err := r.call(ctx, "containerd.Snapshots.Stat", named("look at snapshot", key, ""), r.timeouts.Query, func(ctx context.Context) (err error) {
		resp, err = snapshots.NewSnapshotsClient(r.conn).Stat(inNamespace(ctx, criNamespace), &snapshots.StatSnapshotRequest{Snapshotter: snapshotter, Key: key})
		return err
	})
	if errors.Is(err, errNotFound) || err == nil && resp.GetInfo().GetParent() == "" {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	label, parent := unpackedTo(snapshotter), resp.GetInfo().GetParent()
	var ids []string
	err = r.eachContent(ctx, fmt.Sprintf("%s==%q", present(label), parent), func(info *content.Info) {
		if info.GetLabels()[label] == parent {
			ids = append(ids, info.GetDigest())
		}
	})
	return ids, err
}

// unpackedTo is the label of an image's configuration that names its snapshot.
// containerd puts it there once that is whole.
func unpackedTo(snapshotter string) string { return "containerd.io/gc.ref.snapshot." + snapshotter }

// notUnpacked lists the IDs of images that have no snapshot.
func (r *Runtime) notUnpacked(ctx context.Context, snapshotter string) ([]string, error) {
	list, err := r.Images(ctx)
	if err != nil {
		return nil, err
	}
	unpacked, label := map[string]bool{}, unpackedTo(snapshotter)
	err = r.eachContent(ctx, present(label), func(info *content.Info) {
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

// eachContent lists content that a filter of containerd's matches.
func (r *Runtime) eachContent(ctx context.Context, filter string, each func(*content.Info)) error {
	return r.call(ctx, "containerd.Content.List", "list content", r.timeouts.Query, func(ctx context.Context) error {
		stream, err := content.NewContentClient(r.conn).List(inNamespace(ctx, criNamespace), &content.ListContentRequest{Filters: []string{filter}})
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
