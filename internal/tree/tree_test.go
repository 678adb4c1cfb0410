package tree_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"hostler.io/hostler/internal/tree"
)

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// makeAll creates folders for paths that end in a slash, and files for others.
func makeAll(t *testing.T, root string, paths ...string) {
	t.Helper()
	for _, path := range paths {
		name := filepath.Join(root, path)
		if strings.HasSuffix(path, "/") {
			check(t, os.MkdirAll(name, 0o755))
			continue
		}
		check(t, os.MkdirAll(filepath.Dir(name), 0o755))
		check(t, os.WriteFile(name, nil, 0o644))
	}
}

func open(t *testing.T, path string) *tree.Dir {
	t.Helper()
	d, err := tree.Open(path)
	check(t, err)
	t.Cleanup(d.Close)
	return d
}

// paths walks a tree, and lists the visited entries below the root.
func paths(t *testing.T, root string, maxBytes int, then func(path string)) (found []string, whole bool) {
	t.Helper()
	whole = tree.Walk(open(t, root), maxBytes, func(e tree.Entry) (enter, goOn bool) {
		if e.In == nil {
			return true, true
		}
		path := strings.TrimPrefix(filepath.Join(e.In.Path(), e.Name), root+"/")
		if e.Folder != nil && e.Folder.Path() != filepath.Join(root, path) {
			t.Errorf("Path() = %q, want %q", e.Folder.Path(), filepath.Join(root, path))
		}
		found = append(found, path)
		if then != nil {
			then(path)
		}
		return true, true
	})
	return found, whole
}

// chain creates nested folders, deeper than any path can be long, and returns the innermost.
func chain(t *testing.T, root, name string, depth int) *os.File {
	t.Helper()
	at, err := os.Open(root)
	check(t, err)
	for range depth {
		check(t, unix.Mkdirat(int(at.Fd()), name, 0o755))
		fd, err := unix.Openat(int(at.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		check(t, err)
		check(t, at.Close())
		at = os.NewFile(uintptr(fd), name)
	}
	t.Cleanup(func() { _ = at.Close() })
	return at
}

// held returns the memory in use.
func held() int {
	var m goruntime.MemStats
	goruntime.GC()
	goruntime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

func TestEntriesAreVisitedLevelByLevel(t *testing.T) {
	root := t.TempDir()
	makeAll(t, root, "a/b/c/d", "a/e", "f", "g/")
	check(t, os.Symlink("/", filepath.Join(root, "a", "everything")))
	found, whole := paths(t, root, 1<<20, nil)
	depths := make([]int, len(found))
	for i, path := range found {
		depths[i] = strings.Count(path, "/")
	}
	if !whole || !slices.IsSorted(depths) {
		t.Errorf("Walk() visited %q, whole: %t, want all, level by level", found, whole)
	}
	slices.Sort(found)
	if want := []string{"a", "a/b", "a/b/c", "a/b/c/d", "a/e", "a/everything", "f", "g"}; !slices.Equal(found, want) {
		t.Errorf("Walk() visited %q, want %q", found, want)
	}
}

func TestAVisitDecidesWhatIsEnteredAndWhenToEnd(t *testing.T) {
	root := t.TempDir()
	makeAll(t, root, "skipped/a", "entered/b")
	var found []string
	whole := tree.Walk(open(t, root), 1<<20, func(e tree.Entry) (enter, goOn bool) {
		found = append(found, e.Name)
		return e.Name != "skipped", true
	})
	if !whole || slices.Contains(found, "a") || !slices.Contains(found, "b") {
		t.Errorf("Walk() visited %q, whole: %t, want b and not a", found, whole)
	}
	visits := 0
	whole = tree.Walk(open(t, root), 1<<20, func(tree.Entry) (enter, goOn bool) {
		visits++
		return true, visits < 2
	})
	if whole || visits != 2 {
		t.Errorf("Walk() made %d visits, whole: %t, want it ended after 2", visits, whole)
	}
}

// A folder may be replaced by a link between its visit and its reading.
func TestAFolderThatIsSwappedForALinkIsNotFollowed(t *testing.T) {
	tests := []struct{ name, when, swapped string }{
		{"the folder itself", "a", "a"},
		{"a folder on the way, which is not open any more", "x/y/file", "a"},
		{"a folder on the way, which is open", "a/b/c", "a/b"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			outside := t.TempDir()
			makeAll(t, outside, "secret", "b/secret", "b/c/secret", "c/secret")
			root := t.TempDir()
			makeAll(t, root, "a/b/c/d/e", "x/y/file")
			swapped := false
			found, whole := paths(t, root, 1<<20, func(path string) {
				if path != tt.when || swapped {
					return
				}
				swapped = true
				at := filepath.Join(root, tt.swapped)
				check(t, os.Rename(at, filepath.Join(t.TempDir(), "moved")))
				check(t, os.Symlink(filepath.Join(outside, strings.TrimPrefix(tt.swapped, "a")), at))
			})
			if !swapped || slices.ContainsFunc(found, func(path string) bool { return strings.Contains(path, "secret") }) {
				t.Errorf("Walk() visited %q, want nothing that the link leads to", found)
			}
			if !whole {
				t.Error("Walk() = false, want true: a swapped folder counts as removed")
			}
		})
	}
}

func TestALinkIsNotOpenedAsAFolder(t *testing.T) {
	root := t.TempDir()
	makeAll(t, root, "folder/file")
	check(t, os.Symlink("folder", filepath.Join(root, "link")))
	check(t, os.Symlink("file", filepath.Join(root, "folder", "link")))
	d := open(t, root)
	if _, err := d.Open("link"); !tree.Gone(err) {
		t.Errorf("Open(link) = %v, want an error that says that it does not exist", err)
	}
	folder, err := d.Open("folder")
	check(t, err)
	defer folder.Close()
	if _, err := folder.OpenFile("link", os.O_RDONLY); !errors.Is(err, unix.ELOOP) {
		t.Errorf("OpenFile(link) = %v, want ELOOP", err)
	}
	if leads, err := folder.Readlink("link"); err != nil || leads != "file" {
		t.Errorf("Readlink() = %q, %v, want file", leads, err)
	}
	for range 2 { // each walk starts at the beginning
		var names []string
		for name, err := range folder.Names() {
			check(t, err)
			names = append(names, name)
		}
		if slices.Sort(names); !slices.Equal(names, []string{"file", "link"}) {
			t.Errorf("Names() = %q, want file and link", names)
		}
	}
}

// Paths of 3.7 kB must not be in memory, and names only up to the bound.
func TestDeepLongPathsTakeBoundedMemory(t *testing.T) {
	const folders = 4000
	root := t.TempDir()
	long := strings.Repeat("x", 250)
	last := chain(t, root, long, 14)
	for i := range folders {
		check(t, unix.Mkdirat(int(last.Fd()), fmt.Sprintf("%0200d", i), 0o755))
	}
	for _, tt := range []struct {
		maxBytes int
		whole    bool
	}{{2 << 20, true}, {256 << 10, false}} {
		before, most, seen := held(), 0, 0
		whole := tree.Walk(open(t, root), tt.maxBytes, func(e tree.Entry) (enter, goOn bool) {
			if seen++; seen%1000 == 0 {
				most = max(most, held()-before)
			}
			return true, true
		})
		if whole != tt.whole || seen != 15+folders {
			t.Errorf("Walk() with %d bytes visited %d, whole: %t, want %d and %t", tt.maxBytes, seen, whole, 15+folders, tt.whole)
		}
		if limit := tt.maxBytes + 512<<10; most > limit {
			t.Errorf("Walk() with %d bytes held %d, want no more than %d", tt.maxBytes, most, limit)
		}
		t.Logf("with %d bytes: %d entries, at most %d bytes held", tt.maxBytes, seen, most)
	}
}

// Entries that were read must not stay in memory.
func TestManyFoldersAreWalkedWithinMaxBytes(t *testing.T) {
	const levels, each = 40, 20
	root := t.TempDir()
	at := root
	for range levels {
		for i := range each {
			check(t, os.Mkdir(filepath.Join(at, fmt.Sprint(i)), 0o755))
		}
		at = filepath.Join(at, "0")
	}
	if found, whole := paths(t, root, 2<<10, nil); whole || len(found) == levels*each {
		t.Errorf("Walk() with 2 KiB visited %d, whole: %t, want fewer than are there", len(found), whole)
	}
	if found, whole := paths(t, root, 8<<10, nil); !whole || len(found) != levels*each {
		t.Errorf("Walk() with 8 KiB visited %d, whole: %t, want all of %d", len(found), whole, levels*each)
	}
}

// limitFiles lowers the limit of open files to the current number plus more.
func limitFiles(t *testing.T, more int) {
	t.Helper()
	var limit unix.Rlimit
	check(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	next, err := os.Open("/dev/null") // the lowest free number; few descriptors have higher numbers
	check(t, err)
	lower := limit
	lower.Cur = uint64(next.Fd()) + 1 + uint64(more)
	check(t, next.Close())
	check(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &lower))
	t.Cleanup(func() { check(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)) })
}

func TestATreeMayBeDeeperThanTheDescriptorLimit(t *testing.T) {
	const depth = 500
	root := t.TempDir()
	chain(t, root, "deep", depth)
	makeAll(t, root, "beside/file")
	limitFiles(t, 24)
	visits, deepest := 0, 0
	whole := tree.Walk(open(t, root), 8<<20, func(e tree.Entry) (enter, goOn bool) {
		visits++
		if e.Folder != nil {
			deepest = max(deepest, e.Folder.Depth)
		}
		return true, true
	})
	if !whole || visits != depth+3 || deepest != depth {
		t.Errorf("Walk() visited %d, the deepest %d below, whole: %t, want %d, %d and true", visits, deepest, whole, depth+3, depth)
	}
}

func TestAWalkWithoutDescriptorsIsNotWhole(t *testing.T) {
	root := t.TempDir()
	makeAll(t, root, "a/b/c/d/e")
	limitFiles(t, 8)
	var taken []*os.File
	give := func() {
		for _, f := range taken {
			check(t, f.Close())
		}
		taken = nil
	}
	defer give()
	found, whole := paths(t, root, 1<<20, func(path string) {
		for path == "a/b" {
			f, err := os.Open("/dev/null")
			if errors.Is(err, unix.EMFILE) {
				return
			}
			check(t, err)
			taken = append(taken, f)
		}
	})
	if whole || !slices.Equal(found, []string{"a", "a/b"}) {
		t.Errorf("Walk() visited %q, whole: %t, want a and a/b, and no claim to be whole", found, whole)
	}
	give()
	if found, whole := paths(t, root, 1<<20, nil); !whole || len(found) != 5 {
		t.Errorf("Walk() visited %q, whole: %t once there are descriptors, want all 5", found, whole)
	}
}

func TestAHugeFolderIsReadInParts(t *testing.T) {
	const count = 2_000
	root := t.TempDir()
	for i := range count {
		makeAll(t, root, fmt.Sprint(i))
	}
	allocations := testing.AllocsPerRun(1, func() {
		read := 0
		for _, err := range tree.Names(root) {
			check(t, err)
			if read++; read == 100 {
				break
			}
		}
	})
	if allocations > count/4 {
		t.Errorf("100 of %d names took %.0f allocations, want no more than for those", count, allocations)
	}
	for _, err := range tree.Names(filepath.Join(root, "missing")) {
		if !tree.Gone(err) {
			t.Errorf("Names(missing) = %v, want it gone", err)
		}
	}
}
