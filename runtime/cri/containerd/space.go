package containerd

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/containerd/api/services/content/v1"
	"github.com/containerd/containerd/api/services/snapshots/v1"

	"hostler.io/hostler/runtime"
)

// OwnedSpace lists the folders in which containers of all namespaces write, and the space of images
// of namespaces other than CRI's.
func (s *Services) OwnedSpace(ctx context.Context) ([]runtime.Owned, error) {
	cri := store{content: make(map[string]*content.Info)}
	err := s.eachContentIn(ctx, CRINamespace, nil, func(info *content.Info) { cri.content[info.GetDigest()] = info })
	if err != nil {
		return nil, err
	}
	owned, _, err := s.writable(ctx, CRINamespace, cri.snapshotters())
	if err != nil {
		return nil, err
	}
	err = s.eachNamespace(ctx, CRINamespace, func(name string) error {
		other := store{content: make(map[string]*content.Info)}
		var bytes uint64
		err := s.eachContentIn(ctx, name, nil, func(info *content.Info) {
			if other.content[info.GetDigest()] = info; cri.content[info.GetDigest()] == nil {
				bytes += uint64(max(info.GetSize(), 0))
			}
		})
		if err != nil {
			return err
		}
		folders, committed, err := s.writable(ctx, name, union(cri.snapshotters(), other.snapshotters()))
		if owned = append(owned, folders...); bytes+committed > 0 {
			owned = append(owned, runtime.Owned{Bytes: bytes + committed, By: "images in containerd's namespace " + name})
		}
		return err
	})
	return owned, err
}

func union(a, b []string) []string {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}

// writable lists the folders of the writable snapshots in a namespace, which belong to containers,
// and the size of the other snapshots.
func (s *Services) writable(ctx context.Context, namespace string, snapshotters []string) (folders []runtime.Owned, committed uint64, err error) {
	for _, snapshotter := range snapshotters {
		list, err := s.snapshots(ctx, namespace, snapshotter)
		if err != nil {
			return nil, 0, err
		}
		if namespace != CRINamespace {
			usages, err := s.usages(ctx, namespace, snapshotter, list)
			if err != nil {
				return nil, 0, err
			}
			for _, u := range usages {
				committed += uint64(max(u.GetSize(), 0))
			}
		}
		for _, info := range list {
			if info.GetKind() != snapshots.Kind_ACTIVE {
				continue
			}
			folder, err := s.upper(ctx, namespace, snapshotter, info.GetName())
			if err != nil {
				return nil, 0, err
			}
			if folder != "" {
				folders = append(folders, runtime.Owned{
					Folder: folder, Container: info.GetName(), By: fmt.Sprintf("container %s in containerd's namespace %s", info.GetName(), namespace),
				})
			}
		}
	}
	return folders, committed, nil
}

// upper returns the folder of a writable overlay snapshot, which contains "fs" and "work".
func (s *Services) upper(ctx context.Context, namespace, snapshotter, key string) (string, error) {
	var resp *snapshots.MountsResponse
	err := s.Call(ctx, "containerd.Snapshots.Mounts", fmt.Sprintf("get mounts of snapshot %q", key), func(ctx context.Context) (err error) {
		resp, err = snapshots.NewSnapshotsClient(s.Conn).Mounts(inNamespace(ctx, namespace), &snapshots.MountsRequest{Snapshotter: snapshotter, Key: key})
		return unlessGone(err)
	})
	for _, mount := range resp.GetMounts() {
		for _, option := range mount.GetOptions() {
			if upper, found := strings.CutPrefix(option, "upperdir="); found {
				return filepath.Dir(upper), err
			}
		}
	}
	return "", err
}
