package meter_test

import (
	"fmt"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"hostler.io/hostler/gc/meter"
	"hostler.io/hostler/runtime"
)

func TestStatfsNamesTheLargestFolders(t *testing.T) {
	root := t.TempDir()
	write := func(path string, size int) {
		t.Helper()
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(strings.Repeat("x", size)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("snapshots/1/fs/big", 3<<20)
	for i := range 20 {
		write(fmt.Sprintf("snapshots/2/fs/file-%d", i), 1)
	}
	write("content/blobs/sha256/a", 1<<20)
	write("leftover/dump", 2<<20)
	if err := os.Symlink("/", filepath.Join(root, "leftover", "everything")); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(filepath.Join(root, "leftover/dump"), filepath.Join(root, "leftover/same")); err != nil {
		t.Fatal(err)
	}
	var s meter.Statfs
	fs := runtime.Filesystem{Path: filepath.Join(root, "snapshots"), Mountpoint: root}
	tests := []struct {
		name     string
		byInodes bool
		want     []string
	}{
		{"by bytes", false, []string{"snapshots/1/fs", "leftover", "content/blobs/sha256"}},
		{"by inodes", true, []string{"snapshots/2/fs"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			folders, err := s.Folders(t.Context(), fs, tt.byInodes)
			if err != nil || len(folders) < len(tt.want) {
				t.Fatalf("Folders() = %v, %v, want %v first", folders, err, tt.want)
			}
			for i, want := range tt.want {
				if f := folders[i]; f.Path != filepath.Join(root, want) || f.Filesystem != root {
					t.Errorf("Folders()[%d] = %+v, want %s of %s", i, f, want, root)
				}
			}
			for _, f := range folders {
				if f.SizeBytes > 4<<20 || f.Inodes > 30 {
					t.Errorf("Folders() names %+v, want no more in it than was written", f)
				}
			}
		})
	}
	if _, err := s.Folders(t.Context(), runtime.Filesystem{Path: filepath.Join(root, "gone")}, false); err == nil {
		t.Error("Folders(missing folder) = nil, want an error")
	}
}

// What fills a filesystem may be anywhere on it, beside something larger.
func TestFoldersAreThoseOfTheWholeFilesystem(t *testing.T) {
	root := t.TempDir()
	write := func(path string, size int64) {
		t.Helper()
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if err := unix.Fallocate(int(f.Fd()), 0, 0, size); err != nil {
			t.Fatal(err)
		}
	}
	write("var/lib/containerd/snapshots/1/fs/big", 150<<20)
	write("var/lib/containerd/snapshots/2/fs/small", 4<<10)
	write("var/lib/containerd/data", 30<<20)
	write("var/lib/containerd/notes/few", 10<<20)
	write("root/dump", 70<<20)
	write("var/log/pods/shop_web_uid-1/main/0.log", 192<<20)
	for i := range 50 {
		write(fmt.Sprintf("srv/many/%d/part", i), 1<<20)
	}
	var s meter.Statfs
	folders, err := s.Folders(t.Context(), runtime.Filesystem{Path: filepath.Join(root, "var/lib/containerd/snapshots"), Mountpoint: root}, false)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range folders {
		if f.AtLeast {
			t.Errorf("Folders() = %+v, want all entries measured", f)
		}
		got = append(got, fmt.Sprintf("%s %d", strings.TrimPrefix(f.Path, root+"/"), f.SizeBytes>>20))
	}
	want := []string{
		"var/log/pods/shop_web_uid-1/main 192", "var/lib/containerd/snapshots/1/fs 150", "root 70", "srv/many 50", "var/lib/containerd 30", "var/lib/containerd/notes 10",
	}
	if !slices.Equal(got, want) {
		t.Errorf("Folders() = %q, want %q", got, want)
	}
}

// A folder with millions of files may use up a filesystem's inodes. It must not use up the memory,
// too.
func TestFoldersReadsAHugeFolderInParts(t *testing.T) {
	const count = 5_000
	path := filepath.Join(t.TempDir(), "root", "images")
	if err := os.MkdirAll(path, 0o755); err != nil {
		t.Fatal(err)
	}
	for i := range count {
		if err := os.WriteFile(filepath.Join(path, fmt.Sprint(i)), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	allocations := testing.AllocsPerRun(1, func() {
		if err := meter.Weigh(path, 100); err != nil {
			t.Fatal(err)
		}
	})
	if allocations > count/2 {
		t.Errorf("a measurement of 100 of %d entries made %.0f allocations, want no more than for those", count, allocations)
	}
}

// Long paths on the filesystem must not use up the memory.
func TestFoldersWithLongPathsTakeBoundedMemory(t *testing.T) {
	const count = 4000
	long := strings.Repeat("x", 250)
	for name, above := range map[string]int{"deep, with paths of 3.7 kB": 14, "where folders are weighed, with paths of 1.2 kB": 4} {
		t.Run(name, func(t *testing.T) {
			root := filepath.Join(t.TempDir(), "root")
			last := filepath.Join(append([]string{root}, slices.Repeat([]string{long}, above)...)...)
			if err := os.MkdirAll(last, 0o755); err != nil {
				t.Fatal(err)
			}
			folder, err := os.Open(last)
			if err != nil {
				t.Fatal(err)
			}
			defer folder.Close()
			for i := range count {
				if err := unix.Mkdirat(int(folder.Fd()), fmt.Sprintf("%0200d", i), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			var before, after goruntime.MemStats
			goruntime.ReadMemStats(&before)
			if err := meter.Weigh(filepath.Join(root, long), 10*count); err != nil {
				t.Fatal(err)
			}
			goruntime.ReadMemStats(&after)
			allocated := (after.TotalAlloc - before.TotalAlloc) >> 10
			t.Logf("allocated %d KiB", allocated)
			if most := uint64(count * 6); allocated > most { // only names are held; the race detector needs three times as much
				t.Errorf("a measurement of %d folders allocated %d KiB, want at most %d", count, allocated, most)
			}
		})
	}
}
