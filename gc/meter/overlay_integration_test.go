//go:build integration

package meter_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"hostler.io/hostler/gc/meter"
	"hostler.io/hostler/runtime"
	"hostler.io/hostler/test/lab"
)

// On an overlay of several filesystems, files and folders have different devices.
func TestFoldersOnAnOverlayAreWeighed(t *testing.T) {
	lab.In(t) // mounts belong to the lab
	at := t.TempDir()
	folder := func(name string) string {
		t.Helper()
		path := filepath.Join(at, name)
		if err := os.MkdirAll(path, 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	mount := func(source, target, kind, data string) {
		t.Helper()
		if err := unix.Mount(source, target, kind, 0, data); err != nil {
			t.Fatalf("mount %s at %s: %v", kind, target, err)
		}
		t.Cleanup(func() { _ = unix.Unmount(target, unix.MNT_DETACH) })
	}
	write := func(path string) {
		t.Helper()
		if err := os.WriteFile(path, make([]byte, 1<<20), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	mount("tmpfs", folder("lower"), "tmpfs", "")
	mount("tmpfs", folder("upper"), "tmpfs", "")
	write(filepath.Join(folder("lower/root/leftover"), "below"))
	mount("overlay", folder("merged"), "overlay", "xino=off,lowerdir="+folder("lower")+",upperdir="+folder("upper/files")+",workdir="+folder("upper/work"))
	write(filepath.Join(folder("merged/root/leftover"), "above"))
	mount("tmpfs", folder("merged/root/elsewhere"), "tmpfs", "")
	write(filepath.Join(folder("merged/root/elsewhere/deep"), "other"))

	var s meter.Statfs
	got, err := s.Folders(t.Context(), runtime.Filesystem{Path: folder("merged/root/images"), Mountpoint: folder("merged")}, false)
	if err != nil || len(got) == 0 || got[0].Path != folder("merged/root/leftover") || got[0].SizeBytes < 2<<20 || got[0].SizeBytes > 2<<20+1<<16 {
		t.Errorf("Folders() = %+v, %v, want the leftover first, with 2 MiB of both layers", got, err)
	}
	for _, f := range got {
		if strings.Contains(f.Path, "elsewhere") {
			t.Errorf("Folders() = %+v, want nothing of what is mounted there", got)
		}
	}
}
