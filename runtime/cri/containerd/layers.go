package containerd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/containerd/containerd/api/services/content/v1"
	"github.com/containerd/containerd/api/services/snapshots/v1"
	"golang.org/x/sync/errgroup"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/local"
)

const (
	// Labels of content reference other objects, so that containerd's garbage collection keeps
	// these: https://github.com/containerd/containerd/blob/main/docs/garbage-collection.md.
	refContent  = "containerd.io/gc.ref.content"
	refSnapshot = "containerd.io/gc.ref.snapshot."

	// usagesAtOnce bounds concurrent requests for sizes of snapshots.
	usagesAtOnce = 8
)

// store is the image data of a namespace.
type store struct {
	content map[string]*content.Info // by digest
	// snapshots are the layers of all snapshotters, as "SNAPSHOTTER/KEY".
	tree *local.LayerTree
}

// Layers lists the blobs and snapshots of a namespace's images with these IDs, with everything that
// keeps containerd from removing them.
func (s *Services) Layers(ctx context.Context, namespace, runtimeName string, ids []string) ([]runtime.Layer, error) {
	st := store{content: make(map[string]*content.Info), tree: local.NewLayerTree()}
	err := s.eachContentIn(ctx, namespace, nil, func(info *content.Info) { st.content[info.GetDigest()] = info })
	if err != nil {
		return nil, err
	}
	for digest, info := range st.content {
		st.tree.Add(digest, "", uint64(max(info.GetSize(), 0)), 1)
	}
	for _, snapshotter := range st.snapshotters() {
		if err := s.addSnapshots(ctx, namespace, snapshotter, st.tree); err != nil {
			return nil, err
		}
	}
	records, err := s.records(ctx, namespace)
	if err != nil {
		return nil, err
	}
	for _, record := range records {
		reached := st.reach(record.GetTarget().GetDigest())
		images := slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return !slices.Contains(reached, id) })
		for _, key := range reached {
			for _, id := range images {
				st.tree.HoldByImage(key, id)
			}
			if len(images) == 0 {
				st.tree.HoldByUser(key, "image "+record.GetName())
			}
		}
	}
	// Namespaces share blobs, but not snapshots.
	err = s.eachNamespace(ctx, namespace, func(other string) error {
		return s.eachContentIn(ctx, other, nil, func(info *content.Info) {
			st.tree.HoldByUser(info.GetDigest(), "containerd's namespace "+other)
		})
	})
	return st.tree.List(runtimeName), err
}

// snapshotters returns the snapshotters to which images are unpacked.
func (st *store) snapshotters() []string {
	var names []string
	for _, info := range st.content {
		for label := range info.GetLabels() {
			if rest, found := strings.CutPrefix(label, refSnapshot); found {
				name, _, _ := strings.Cut(rest, "/")
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// reach lists everything that containerd keeps as long as the content with the digest.
func (st *store) reach(digest string) []string {
	var reached []string
	for todo := []string{digest}; len(todo) > 0; {
		digest := todo[0]
		todo = todo[1:]
		info := st.content[digest]
		if info == nil || slices.Contains(reached, digest) {
			continue
		}
		reached = append(reached, digest)
		for label, value := range info.GetLabels() {
			rest, found := strings.CutPrefix(label, refSnapshot)
			snapshotter, _, _ := strings.Cut(rest, "/")
			switch {
			case found:
				reached = append(reached, snapshotter+"/"+value)
			case strings.HasPrefix(label, refContent):
				todo = append(todo, value)
			}
		}
	}
	return reached
}

// addSnapshots adds the snapshots of one snapshotter. Writable ones belong to containers, and have
// the ID of their container.
func (s *Services) addSnapshots(ctx context.Context, namespace, snapshotter string, tree *local.LayerTree) error {
	list, err := s.snapshots(ctx, namespace, snapshotter)
	if err != nil {
		return err
	}
	usages, err := s.usages(ctx, namespace, snapshotter, list)
	if err != nil {
		return err
	}
	for i, info := range list {
		if info.GetKind() == snapshots.Kind_COMMITTED {
			tree.Add(snapshotter+"/"+info.GetName(), parentKey(snapshotter, info), uint64(max(usages[i].GetSize(), 0)), uint64(max(usages[i].GetInodes(), 0)))
		}
	}
	for _, info := range list {
		if info.GetKind() != snapshots.Kind_COMMITTED {
			tree.HoldByUser(parentKey(snapshotter, info), info.GetName())
		}
	}
	return nil
}

func parentKey(snapshotter string, info *snapshots.Info) string {
	if info.GetParent() == "" {
		return ""
	}
	return snapshotter + "/" + info.GetParent()
}

// snapshots lists the snapshots of a snapshotter in a namespace.
func (s *Services) snapshots(ctx context.Context, namespace, snapshotter string) (list []*snapshots.Info, err error) {
	err = s.Call(ctx, "containerd.Snapshots.List", "list snapshots", func(ctx context.Context) error {
		stream, err := snapshots.NewSnapshotsClient(s.Conn).List(inNamespace(ctx, namespace), &snapshots.ListSnapshotsRequest{Snapshotter: snapshotter})
		for err == nil {
			var resp *snapshots.ListSnapshotsResponse
			if resp, err = stream.Recv(); err == nil {
				list = append(list, resp.GetInfo()...)
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		return err
	})
	return list, err
}

// usages returns the sizes of committed snapshots, by their index in the list. Other snapshots are
// measured file by file instead.
func (s *Services) usages(ctx context.Context, namespace, snapshotter string, list []*snapshots.Info) ([]*snapshots.UsageResponse, error) {
	usages := make([]*snapshots.UsageResponse, len(list))
	group, grouped := errgroup.WithContext(ctx)
	group.SetLimit(usagesAtOnce)
	for i, info := range list {
		if info.GetKind() != snapshots.Kind_COMMITTED {
			continue
		}
		group.Go(func() error {
			return s.Call(grouped, "containerd.Snapshots.Usage", fmt.Sprintf("get size of snapshot %q", info.GetName()), func(ctx context.Context) (err error) {
				usages[i], err = snapshots.NewSnapshotsClient(s.Conn).Usage(inNamespace(ctx, namespace), &snapshots.UsageRequest{Snapshotter: snapshotter, Key: info.GetName()})
				return unlessGone(err)
			})
		})
	}
	return usages, group.Wait()
}
