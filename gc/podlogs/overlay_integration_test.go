//go:build integration

package podlogs_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"hostler.io/hostler/gc/podlogs"
	"hostler.io/hostler/test/lab"
)

// newOverlay returns a tree whose root is an overlay of two filesystems, on which files and folders
// have different devices. lower writes into the lower layer.
func newOverlay(t *testing.T, lower func(below *tree)) *tree {
	t.Helper()
	lab.In(t) // mounts belong to the lab
	at := t.TempDir()
	mount := func(source, target, kind, data string) {
		t.Helper()
		if err := unix.Mount(source, target, kind, 0, data); err != nil {
			t.Fatalf("mount %s at %s: %v", kind, target, err)
		}
		t.Cleanup(func() { _ = unix.Unmount(target, unix.MNT_DETACH) })
	}
	folder := func(name string) string {
		t.Helper()
		path := filepath.Join(at, name)
		if err := os.MkdirAll(path, 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	below, above, merged := folder("lower"), folder("upper"), folder("merged")
	mount("tmpfs", below, "tmpfs", "")
	mount("tmpfs", above, "tmpfs", "")
	layer := &tree{t, below, podlogs.New(below)}
	lower(layer)
	// Without xino, the kernel cannot hide the devices of the layers.
	mount("overlay", merged, "overlay", "xino=off,lowerdir="+below+",upperdir="+folder("upper/files")+",workdir="+folder("upper/work"))
	return &tree{t, merged, podlogs.New(merged)}
}

func TestLogsOnAnOverlayGo(t *testing.T) {
	const pod = "pods/barn_horse_u1"
	b := newOverlay(t, func(below *tree) {
		below.write(pod+"/saddle/0.log", "of the layer below")
		below.link("containers/horse_barn_saddle-c1.log", "/var/log/pods/barn_horse_u1/saddle/0.log")
	})
	b.write(pod+"/saddle/1.log", "of the layer above")
	b.write(pod+"/bridle/0.log", "of a folder of the layer above")

	var folder, file unix.Stat_t
	if err := unix.Lstat(b.path(pod+"/saddle"), &folder); err != nil {
		t.Fatal(err)
	}
	if err := unix.Lstat(b.path(pod+"/saddle/0.log"), &file); err != nil {
		t.Fatal(err)
	}
	if folder.Dev == file.Dev {
		t.Fatalf("a file on the overlay has the device of its folder, %d, want another one: otherwise this test proves nothing", file.Dev)
	}
	log := b.one()
	if log.Foreign != "" {
		t.Errorf("Find() = foreign %q, want a log folder like any other", log.Foreign)
	}
	if err := b.host.Remove(t.Context(), log); err != nil || b.exists(pod) {
		t.Errorf("Remove() = %v, want the folder gone", err)
	}
	link := b.one()
	if err := b.host.Remove(t.Context(), link); err != nil || !link.Link || b.exists("containers/horse_barn_saddle-c1.log") {
		t.Errorf("Remove() of %+v = %v, want the link gone, which dangles by now", link, err)
	}
}

func TestMountsOnAnOverlayAreLeftAlone(t *testing.T) {
	tests := []struct{ name, at, message string }{
		{"over a pod's folder", "pods/barn_horse_u1", "it is a mount point"},
		{"over the folder of a container's logs", "pods/barn_horse_u1/saddle", "it contains saddle, which is a mount point"},
		{"over a log", "pods/barn_horse_u1/saddle/0.log", "it contains saddle/0.log, which is a mount point"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newOverlay(t, func(below *tree) { below.write("pods/barn_horse_u1/saddle/0.log", "neigh") })
			// The mount is from the same filesystem, so the device does not show it.
			b.write("precious/saddle/0.log", "precious")
			source := b.path(strings.Replace(tt.at, "pods/barn_horse_u1", "precious", 1))
			if err := unix.Mount(source, b.path(tt.at), "", unix.MS_BIND, ""); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = unix.Unmount(b.path(tt.at), unix.MNT_DETACH) })
			log := b.one()
			if log.Foreign != tt.message {
				t.Errorf("Find() = foreign %q, want %q", log.Foreign, tt.message)
			}
			log.Foreign = ""
			if err := b.host.Remove(t.Context(), log); err == nil {
				t.Errorf("Remove() = nil, want it refused")
			}
			if !b.exists("precious/saddle/0.log") || !b.exists("pods/barn_horse_u1") {
				t.Errorf("Remove() took what is mounted, or what it is mounted on")
			}
		})
	}
}
