package meter_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

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
	fs := runtime.Filesystem{Path: filepath.Join(root, "snapshots"), Mountpoint: "/mnt"}
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
				if f := folders[i]; f.Path != filepath.Join(root, want) || f.Filesystem != "/mnt" {
					t.Errorf("Folders()[%d] = %+v, want %s of /mnt", i, f, want)
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

// A folder of millions of files is what fills a filesystem's inodes: it must not
// fill the memory as well.
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
		t.Errorf("a look at 100 of %d entries made %.0f allocations, want no more than for those", count, allocations)
	}
}
