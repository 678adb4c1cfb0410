package meter

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"hostler.io/hostler/gc"
	"hostler.io/hostler/runtime"
)

const (
	maxFolders  = 5
	folderDepth = 4       // below the root, as deep as containerd keeps one folder a container
	walkEntries = 300_000 // a second or so, where they are in memory
	walkLimit   = 5 * time.Second
)

// Folders names the largest folders of a runtime's root, the folder above the one
// that it keeps images in, largest first, in bytes or in inodes. It looks at so
// many files only as take moments: on a host with more of them the figures are too
// low.
func (s *Statfs) Folders(ctx context.Context, filesystem runtime.Filesystem, byInodes bool) ([]gc.Folder, error) {
	root := folder(filesystem)
	answer, err := s.bounded(ctx, "walk", root, func() (any, error) { return weigh(root, walkEntries, time.Now().Add(walkLimit)) })
	if err != nil {
		return nil, err
	}
	weighed := answer.(weights)
	folders := weighed.largest(byInodes)
	for i := range folders {
		folders[i].Filesystem = cmp.Or(filesystem.Mountpoint, filesystem.Path)
	}
	return folders, nil
}

// weights are folders below a root by what they hold.
type weights struct {
	root    string
	folders map[string]*gc.Folder // the root itself under its own path
}

// weigh adds up what lies where. It follows no link and leaves the filesystem
// nowhere; a file of several names counts under one of them.
func weigh(path string, most int, until time.Time) (weights, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return weights{}, err
	}
	device := st.Dev
	w := weights{root: path, folders: make(map[string]*gc.Folder)}
	if err := unix.Stat(filepath.Dir(path), &st); err == nil && st.Dev == device {
		w.root = filepath.Dir(path)
	}
	seen := make(map[[2]uint64]bool) // devices and inodes of what has several names
	entries := 0
	walk(w.root, func(path string) (isFolder, goOn bool) {
		if entries++; entries > most || entries%1000 == 0 && time.Now().After(until) {
			return false, false
		}
		var st unix.Stat_t
		if unix.Lstat(path, &st) != nil {
			return false, true // gone meanwhile, or not to be read: what is left is told
		}
		isFolder = st.Mode&unix.S_IFMT == unix.S_IFDIR
		// A file on an overlay may tell the device of the layer that it lies in.
		if isFolder && st.Dev != device {
			return false, true
		}
		if st.Nlink > 1 && !isFolder {
			inode := [2]uint64{st.Dev, st.Ino}
			if seen[inode] {
				return false, true
			}
			seen[inode] = true
		}
		w.add(path, isFolder, uint64(st.Blocks)*512)
		return isFolder, true
	})
	return w, nil
}

// readAtOnce is how many entries of a folder are read together: one may hold
// millions.
const readAtOnce = 256

// walk calls look for root and for all that is below it, as long as that says to go
// on. What cannot be read is passed over.
func walk(root string, look func(path string) (isFolder, goOn bool)) {
	isFolder, goOn := look(root)
	if !isFolder || !goOn {
		return
	}
	for folders := []string{root}; len(folders) > 0; {
		folder := folders[len(folders)-1]
		folders = folders[:len(folders)-1]
		f, err := os.OpenFile(folder, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
		if err != nil {
			continue
		}
		for err == nil {
			var names []string
			names, err = f.Readdirnames(readAtOnce)
			for _, name := range names {
				path := filepath.Join(folder, name)
				if isFolder, goOn = look(path); !goOn {
					_ = f.Close() // nothing was written
					return
				}
				if isFolder {
					folders = append(folders, path)
				}
			}
		}
		_ = f.Close() // nothing was written
	}
}

// add counts a file or a folder to all folders that it is in or is.
func (w *weights) add(path string, isFolder bool, size uint64) {
	inside := strings.TrimPrefix(strings.TrimPrefix(path, w.root), "/")
	if !isFolder {
		inside, _ = filepath.Split(inside)
		inside = strings.TrimSuffix(inside, "/")
	}
	at := w.root
	w.count(at, size)
	if inside == "" {
		return
	}
	for _, part := range strings.SplitN(inside, "/", folderDepth+1)[:min(folderDepth, strings.Count(inside, "/")+1)] {
		at = filepath.Join(at, part)
		w.count(at, size)
	}
}

func (w *weights) count(path string, size uint64) {
	f := w.folders[path]
	if f == nil {
		f = &gc.Folder{Path: path}
		w.folders[path] = f
	}
	f.SizeBytes += size
	f.Inodes++
}

// largest names the folders in which the weight is: one that is mostly a few of
// those in it is not named, and they are.
func (w *weights) largest(byInodes bool) []gc.Folder {
	weight := func(f *gc.Folder) uint64 {
		if byInodes {
			return f.Inodes
		}
		return f.SizeBytes
	}
	children := make(map[string][]*gc.Folder)
	for path, f := range w.folders {
		if path != w.root {
			children[filepath.Dir(path)] = append(children[filepath.Dir(path)], f)
		}
	}
	var named []gc.Folder
	var look func(f *gc.Folder)
	look = func(f *gc.Folder) {
		heavy := slices.DeleteFunc(slices.Clone(children[f.Path]), func(c *gc.Folder) bool { return weight(c) < weight(f)/4 })
		if len(heavy) == 0 && f.Path != w.root {
			named = append(named, *f)
		}
		for _, c := range heavy {
			look(c)
		}
	}
	for _, f := range children[w.root] {
		look(f)
	}
	slices.SortFunc(named, func(a, b gc.Folder) int {
		return cmp.Or(cmp.Compare(weight(&b), weight(&a)), strings.Compare(a.Path, b.Path))
	})
	return named[:min(len(named), maxFolders)]
}
