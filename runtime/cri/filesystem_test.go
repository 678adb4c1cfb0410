package cri_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/cri"
)

// filesystems queries a server that reports folder, with the given mountinfo or the machine's own.
func filesystems(t *testing.T, folder, mountinfo string) ([]runtime.Filesystem, error) {
	t.Helper()
	s := newServer(t, containerd16)
	s.set(func() {
		s.answer = func(_ string, resp any) {
			if r, ok := resp.(*criapi.ImageFsInfoResponse); ok {
				r.ImageFilesystems[0].FsId.Mountpoint = folder
			}
		}
	})
	return s.client(t, func(o *cri.Options) {
		if mountinfo == "" {
			return
		}
		o.ProcRoot = t.TempDir()
		if err := os.MkdirAll(filepath.Join(o.ProcRoot, "self"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(o.ProcRoot, "self", "mountinfo"), []byte(mountinfo), 0o644); err != nil {
			t.Fatal(err)
		}
	}).ImageFilesystems(t.Context())
}

// mounts returns mountinfo for lines of "id parent mountpoint source".
func mounts(lines ...string) string {
	var b strings.Builder
	for _, l := range lines {
		f := strings.Fields(l)
		b.WriteString(f[0] + " " + f[1] + " 8:1 / " + f[2] + " rw shared:1 - ext4 " + f[3] + " rw\n")
	}
	return b.String()
}

func TestMountOfTheImageFilesystem(t *testing.T) {
	const folder = "/hostler-test/lib/containerd/overlayfs"
	for name, c := range map[string]struct{ mountinfo, mountpoint, device string }{
		"only a root":           {mounts("1 0 / /dev/sda1"), "/", "/dev/sda1"},
		"a root that is itself": {mounts("1 1 / /dev/sda1"), "/", "/dev/sda1"},
		"a mount of its own": {
			mounts("1 0 / /dev/sda1", "2 1 "+folder+" /dev/sdb"), folder, "/dev/sdb",
		},
		"nested mounts": {
			mounts("1 0 / /dev/sda1", "2 1 /hostler-test /dev/sdb", "3 2 /hostler-test/lib/containerd /dev/sdc"),
			"/hostler-test/lib/containerd", "/dev/sdc",
		},
		"a neighbour with a longer name": {
			mounts("1 0 / /dev/sda1", "2 1 /hostler-test/lib/container /dev/sdb"), "/", "/dev/sda1",
		},
		"two mounts on one point": {
			mounts("1 0 / /dev/sda1", "2 1 /hostler-test /dev/sdb", "3 2 /hostler-test /dev/sdc"), "/hostler-test", "/dev/sdc",
		},
		"a deeper mount that a later one hides": {
			mounts("1 0 / /dev/sda1", "2 1 /hostler-test/lib /dev/sdb", "3 1 /hostler-test /dev/sdc"), "/hostler-test", "/dev/sdc",
		},
		"a mount point with a blank": {
			mounts("1 0 / /dev/sda1", `2 1 /hostler\040test /dev/sdb`), "/", "/dev/sda1",
		},
		"a root inside a container": {
			mounts("700 650 / overlay", "701 700 /hostler-test tmpfs"), "/hostler-test", "tmpfs",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := filesystems(t, folder, c.mountinfo)
			want := runtime.Filesystem{Runtime: "under-test", Path: folder, Mountpoint: c.mountpoint, Device: c.device, ID: "8:1"}
			if err != nil || len(got) != 1 || got[0] != want {
				t.Errorf("ImageFilesystems() = %+v, %v, want %+v", got, err, want)
			}
		})
	}
}

func TestNoMountHoldsTheImages(t *testing.T) {
	got, err := filesystems(t, "/hostler-test", mounts("5 4 /elsewhere /dev/sda1"))
	if err == nil || !strings.Contains(err.Error(), "/hostler-test") {
		t.Errorf("ImageFilesystems() = %+v, %v, want an error that names the folder", got, err)
	}
	if got, err := filesystems(t, "/hostler-test", "not mountinfo\n"); err == nil {
		t.Errorf("ImageFilesystems() without readable mounts = %+v, want an error", got)
	}
}

func TestFolderOfTheImageFilesystem(t *testing.T) {
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(root, "disk", "images"), 0o755); err != nil {
		t.Fatal(err)
	}
	for link, target := range map[string]string{
		"absolute": filepath.Join(root, "disk"), "relative": "disk", "chain": "relative",
		"dangling": "disk/later", "loop": "loop",
	} {
		if err := os.Symlink(target, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct{ folder, want string }{
		"as it is":                         {"disk/images", "disk/images"},
		"behind an absolute link":          {"absolute/images", "disk/images"},
		"behind two relative links":        {"chain/images", "disk/images"},
		"missing":                          {"disk/later/overlayfs", "disk/later/overlayfs"},
		"missing behind a link":            {"relative/later/overlayfs", "disk/later/overlayfs"},
		"missing behind a link to nothing": {"dangling/overlayfs", "disk/later/overlayfs"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := filesystems(t, filepath.Join(root, c.folder), "")
			if err != nil || len(got) != 1 || got[0].Path != filepath.Join(root, c.want) {
				t.Fatalf("ImageFilesystems() = %+v, %v, want path %s", got, err, filepath.Join(root, c.want))
			}
			if _, err := os.Stat(got[0].Mountpoint); err != nil || got[0].Device == "" {
				t.Errorf("ImageFilesystems() = %+v, %v, want a mount that exists", got, err)
			}
		})
	}
	if got, err := filesystems(t, filepath.Join(root, "loop", "x"), ""); err == nil {
		t.Errorf("ImageFilesystems() behind a loop of links = %+v, want an error", got)
	}
}
