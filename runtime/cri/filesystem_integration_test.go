//go:build integration

package cri_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"hostler.io/hostler/gc/meter"
	"hostler.io/hostler/runtime"
	"hostler.io/hostler/status/probe"
	"hostler.io/hostler/test/lab"
)

// bench is a folder with mounts that the test removes.
type bench struct {
	t    *testing.T
	root string
}

func newBench(t *testing.T) *bench {
	t.Helper()
	root, err := os.MkdirTemp(lab.Dir, "mounts-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := lab.Unmount(root); err != nil {
			t.Error(err)
		}
		if err := os.RemoveAll(root); err != nil {
			t.Error(err)
		}
	})
	return &bench{t, root}
}

// dir creates a folder and returns its path.
func (b *bench) dir(name string) string {
	b.t.Helper()
	path := filepath.Join(b.root, name)
	if err := os.MkdirAll(path, 0o755); err != nil {
		b.t.Fatal(err)
	}
	return path
}

func (b *bench) mount(source, name, kind string, flags uintptr, data string) string {
	b.t.Helper()
	target := b.dir(name)
	if err := unix.Mount(source, target, kind, flags, data); err != nil {
		b.t.Fatalf("mount %s at %s: %v", kind, name, err)
	}
	return target
}

func (b *bench) tmpfs(name string, mebibytes int) string {
	b.t.Helper()
	return b.mount("tmpfs-"+name, name, "tmpfs", 0, fmt.Sprintf("size=%dm", mebibytes))
}

// overlay mounts an overlay of folders of the bench.
func (b *bench) overlay(name, lower, upper string) string {
	b.t.Helper()
	return b.mount("overlay", name, "overlay", 0, fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", b.dir(lower), b.dir(upper+"/up"), b.dir(upper+"/work")))
}

// For any arrangement of mounts, the adapter, the meter of collections and the probe of the Node's
// conditions must find the same mount for an image folder.
func TestImageFilesystemOfRealMounts(t *testing.T) {
	const inside = "lib/containerd/overlayfs"
	for name, lay := range map[string]func(b *bench) (folder, mountpoint, device string){
		"a tmpfs": func(b *bench) (string, string, string) {
			disk := b.tmpfs("disk", 16)
			return b.dir("disk/" + inside), disk, "tmpfs-disk"
		},
		"a root that is a link to another filesystem": func(b *bench) (string, string, string) {
			disk := b.tmpfs("disk", 16)
			b.dir("disk/" + inside)
			link := filepath.Join(b.root, "var")
			if err := os.Symlink("disk/lib", link); err != nil {
				b.t.Fatal(err)
			}
			return filepath.Join(link, "containerd/overlayfs"), disk, "tmpfs-disk"
		},
		"a bind mount of a folder": func(b *bench) (string, string, string) {
			b.tmpfs("disk", 16)
			source := b.dir("disk/" + inside)
			target := b.mount(source, "bound", "", unix.MS_BIND, "")
			return target, target, "tmpfs-disk"
		},
		"a bind mount over a folder of another filesystem": func(b *bench) (string, string, string) {
			b.tmpfs("disk", 16)
			b.tmpfs("small", 4)
			target := b.mount(b.dir("disk/data"), "small/lib", "", unix.MS_BIND, "")
			return b.dir("small/" + inside), target, "tmpfs-disk"
		},
		"a filesystem mounted over the one that held it": func(b *bench) (string, string, string) {
			b.tmpfs("disk/lib", 4)
			b.dir("disk/" + inside)
			above := b.tmpfs("disk", 16)
			return b.dir("disk/" + inside), above, "tmpfs-disk"
		},
		"an overlay": func(b *bench) (string, string, string) {
			b.tmpfs("disk", 16)
			merged := b.overlay("merged", "disk/low", "disk")
			return b.dir("merged/" + inside), merged, "overlay"
		},
		"an overlay on an overlay": func(b *bench) (string, string, string) {
			b.tmpfs("disk", 16)
			b.overlay("first", "disk/low", "disk")
			b.tmpfs("other", 8)
			second := b.overlay("second", "first", "other")
			return b.dir("second/" + inside), second, "overlay"
		},
		"a folder that does not exist yet": func(b *bench) (string, string, string) {
			disk := b.tmpfs("disk", 16)
			return filepath.Join(disk, inside), disk, "tmpfs-disk"
		},
	} {
		t.Run(name, func(t *testing.T) {
			folder, mountpoint, device := lay(newBench(t))
			got, err := filesystems(t, folder, "")
			real, _ := filepath.EvalSymlinks(folder)
			if real == "" {
				real = folder
			}
			want := runtime.Filesystem{Runtime: "under-test", Path: real, Mountpoint: mountpoint, Device: device}
			if len(got) == 1 {
				want.ID = got[0].ID // checked below
			}
			if err != nil || len(got) != 1 || got[0] != want {
				t.Fatalf("ImageFilesystems() = %+v, %v, want %+v", got, err, want)
			}
			if err := os.MkdirAll(real, 0o755); err != nil {
				t.Fatal(err)
			}
			agree(t, got[0])
		})
	}
}

// Two runtimes may have the same filesystem at two mount points.
func TestOneFilesystemAtTwoPlaces(t *testing.T) {
	b := newBench(t)
	b.tmpfs("disk", 16)
	b.tmpfs("other", 16)
	b.mount(b.dir("disk/docker"), "docker", "", unix.MS_BIND, "")
	var ids []string
	for _, folder := range []string{"disk/containerd", "docker/images", "other"} {
		got, err := filesystems(t, b.dir(folder), "")
		if err != nil || len(got) != 1 {
			t.Fatalf("ImageFilesystems() = %+v, %v, want one", got, err)
		}
		ids = append(ids, got[0].ID)
	}
	if ids[0] == "" || ids[0] != ids[1] || ids[0] == ids[2] {
		t.Errorf("IDs of filesystems = %q, want the first two the same and the third another", ids)
	}
}

// agree checks that all three measure the filesystem that the adapter returned.
func agree(t *testing.T, fs runtime.Filesystem) {
	t.Helper()
	var at unix.Statfs_t
	if err := unix.Statfs(fs.Mountpoint, &at); err != nil {
		t.Fatal(err)
	}
	var statfs meter.Statfs
	u, err := statfs.Usage(t.Context(), fs)
	if err != nil || u.CapacityBytes != at.Blocks*uint64(at.Frsize) || u.Inodes != at.Files || u.Problem() != "" {
		t.Errorf("Usage(%+v) = %+v, %v, want capacity %d and %d inodes", fs, u, err, at.Blocks*uint64(at.Frsize), at.Files)
	}
	if u.UsedPercent() < 0 || u.UsedPercent() > 100 || u.InodesUsedPercent() < 0 || u.InodesUsedPercent() > 100 {
		t.Errorf("Usage(%+v) is %d%% and %d%% of inodes used, want percentages", fs, u.UsedPercent(), u.InodesUsedPercent())
	}
	seen := probed(t, fs.Path)
	if len(seen) != 1 || seen[0].Mountpoint != fs.Mountpoint || seen[0].Device != fs.Device || seen[0].CapacityBytes != u.CapacityBytes || seen[0].Problem != "" {
		t.Errorf("the Node's probe finds %+v of %s, want what holds the images: %+v", seen, fs.Path, u)
	}
}

// probed returns what the probe of the Node's conditions finds.
func probed(t *testing.T, folder string) []probe.Filesystem {
	t.Helper()
	r, err := probe.New("/")
	if err != nil {
		t.Fatal(err)
	}
	return r.Usage(t.Context(), folder).Filesystems
}

// Some filesystems report no capacity, or none for a while after boot. Nothing may be computed from
// that.
func TestAFilesystemWithoutCapacity(t *testing.T) {
	got, err := filesystems(t, "/proc/sys", "")
	if err != nil || len(got) != 1 || got[0].Mountpoint != "/proc" || got[0].Device != "proc" {
		t.Fatalf("ImageFilesystems() = %+v, %v, want proc", got, err)
	}
	var statfs meter.Statfs
	u, err := statfs.Usage(t.Context(), got[0])
	if err != nil || u.Problem() != "capacity is 0" || u.UsedPercent() != 0 || u.InodesUsedPercent() != 0 {
		t.Errorf("Usage() = %+v (%q), %v, want no capacity, and no percentage of it", u, u.Problem(), err)
	}
	seen := probed(t, got[0].Path)
	if len(seen) != 1 || !strings.Contains(seen[0].Problem, "no capacity") {
		t.Errorf("the Node's probe finds %+v, want it to say that there is no capacity", seen)
	}
}

func TestContainerdFilesystemIsTheMountOfItsRoot(t *testing.T) {
	for name, c := range map[string]struct {
		options lab.ContainerdOptions
		device  string
	}{
		"on ext4":  {lab.ContainerdOptions{ImageFSBytes: 128 << 20}, "/dev/loop"},
		"on xfs":   {lab.ContainerdOptions{ImageFSBytes: 320 << 20, ImageFSKind: "xfs"}, "/dev/loop"},
		"on btrfs": {lab.ContainerdOptions{ImageFSBytes: 256 << 20, ImageFSKind: "btrfs"}, "/dev/loop"},
		"on tmpfs": {lab.ContainerdOptions{ImageFSBytes: 128 << 20, ImageFSTmpfs: true}, "tmpfs"},
	} {
		t.Run(name, func(t *testing.T) {
			r, d := startContainerd(t, c.options)
			list, err := r.ImageFilesystems(t.Context())
			if err != nil || len(list) != 1 {
				t.Fatalf("ImageFilesystems() = %+v, %v, want one", list, err)
			}
			want := runtime.Filesystem{
				Runtime: "containerd", Mountpoint: d.Root,
				Path: filepath.Join(d.Root, "io.containerd.snapshotter.v1."+d.Snapshotter),
			}
			got := list[0]
			got.Device, got.ID = "", ""
			if got != want || !strings.HasPrefix(list[0].Device, c.device) {
				t.Errorf("ImageFilesystems() = %+v, want %+v on %s", list[0], want, c.device)
			}
			d.AddImage(t, "docker.io/library/a:1")
			agree(t, list[0])
		})
	}
}

// Images and containers may be on different filesystems, as with CRI-O's imagestore. The free space
// for images is measured where images are.
func TestSplitImageFilesystem(t *testing.T) {
	b := newBench(t)
	images, writable := b.tmpfs("images", 16), b.tmpfs("containers", 8)
	s := newServer(t, flavour{name: "cri-o", version: "1.30.0", images: idAndDigest, criEvents: true})
	s.set(func() {
		s.answer = func(_ string, resp any) {
			if r, ok := resp.(*criapi.ImageFsInfoResponse); ok {
				r.ImageFilesystems[0].FsId.Mountpoint = images
				r.ContainerFilesystems = []*criapi.FilesystemUsage{{FsId: &criapi.FilesystemIdentifier{Mountpoint: writable}}}
			}
		}
	})
	got, err := s.client(t, nil).ImageFilesystems(t.Context())
	want := runtime.Filesystem{Runtime: "under-test", Path: images, Mountpoint: images, Device: "tmpfs-images"}
	if len(got) == 1 {
		want.ID = got[0].ID
	}
	if err != nil || len(got) != 1 || got[0] != want {
		t.Fatalf("ImageFilesystems() = %+v, %v, want %+v alone", got, err, want)
	}
	agree(t, got[0])
}
