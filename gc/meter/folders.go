package meter

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"hostler.io/hostler/gc"
	"hostler.io/hostler/internal/mounts"
	"hostler.io/hostler/internal/tree"
	"hostler.io/hostler/runtime"
)

const (
	maxFolders  = 8
	folderDepth = 6         // below the root; runtimes keep one folder per container at this depth below /
	heavyShare  = 100       // a folder is listed if it holds this fraction of the total
	walkEntries = 1_000_000 // a few seconds if they are cached
	walkLimit   = 5 * time.Second
	// walkBytes bounds the memory for folders that the walk has yet to read, and also for folders
	// that it measures: some 60,000 of each.
	walkBytes = 8 << 20
	// mostLinked bounds how many files with several names are remembered. Each takes some 40 bytes.
	mostLinked = 1 << 17
)

// Folders returns the largest folders of a runtime's image filesystem, largest first, by bytes or
// by inodes. It stops after a number of entries that takes some seconds. It reads folders with few
// entries first. If there are more entries, the figures are too low, and AtLeast is set.
func (s *Statfs) Folders(ctx context.Context, filesystem runtime.Filesystem, byInodes bool) ([]gc.Folder, error) {
	root := folder(filesystem)
	answer, err := s.bounded(ctx, "walk", root, func() (any, error) {
		return weigh(root, filesystem.Mountpoint, walkEntries, time.Now().Add(walkLimit))
	})
	if err != nil {
		return nil, err
	}
	weighed := answer.(weights)
	folders := weighed.largest(byInodes)
	for i := range folders {
		folders[i].Filesystem = cmp.Or(filesystem.Mountpoint, filesystem.Path)
		folders[i].AtLeast = weighed.cut
	}
	return folders, nil
}

// weights has the content of the folders below a root.
type weights struct {
	root    *tree.Folder
	folders map[*tree.Folder]*weight
	bytes   int  // memory of the folders
	cut     bool // not all entries were read
}

// weight is the content of a folder.
type weight struct{ bytes, inodes uint64 }

// of returns the bytes or the inodes.
func (w weight) of(byInodes bool) uint64 {
	if byInodes {
		return w.inodes
	}
	return w.bytes
}

// weigh measures the content of a folder's filesystem. It starts at the mount point, or at the
// folder above path if another mount hides the mount point. It follows no link and enters no other
// mount. A file with several names counts once.
func weigh(path, mountpoint string, most int, until time.Time) (weights, error) {
	root, pid, err := openRoot(path, mountpoint)
	if err != nil {
		return weights{}, err
	}
	defer root.Close()
	w := weights{folders: make(map[*tree.Folder]*weight)}
	device := tree.Device(root.Self)
	mounts := map[uint64]bool{root.Self.Mnt_id: true} // mounts to read
	same := sameFolders(root.Self.Mnt_id, pid)
	seen := make(map[[2]uint64]bool) // device and inode of files with several names
	entries := 0
	whole := tree.Walk(root, walkBytes, func(e tree.Entry) (enter, goOn bool) {
		if entries++; entries > most || time.Now().After(until) {
			return false, false
		}
		// On an overlay, a file may have the device of its layer.
		if e.Folder != nil {
			if !mounts[e.Stat.Mnt_id] && same[e.Folder.Path()] {
				mounts[e.Stat.Mnt_id] = true
			}
			if tree.Device(e.Stat) != device || !mounts[e.Stat.Mnt_id] {
				return false, true
			}
		}
		if e.Stat.Nlink > 1 && e.Folder == nil {
			inode := [2]uint64{tree.Device(e.Stat), e.Stat.Ino}
			if seen[inode] {
				return false, true
			}
			if len(seen) == mostLinked {
				w.cut = true
				return false, true
			}
			seen[inode] = true
		}
		w.add(e)
		return true, true
	})
	w.cut = w.cut || !whole
	return w, nil
}

// openRoot opens the first of these that is on the filesystem of path: the mount point, the folder
// above path, and path. It also returns a process whose mounts below it are used. Only root can
// change what these paths are. The mount point is opened as process 1 sees it: PrivateTmp= of the
// unit hides the host's /tmp and /var/tmp from this process.
func openRoot(path, mountpoint string) (root *tree.Dir, pid int, err error) {
	pid = os.Getpid()
	folder, err := tree.Open(path)
	if err != nil {
		return nil, 0, err
	}
	if root, err := openOnHost(mountpoint); err == nil {
		if tree.Device(root.Self) == tree.Device(folder.Self) {
			folder.Close()
			return root, 1, nil
		}
		root.Close()
	}
	for _, above := range []string{mountpoint, filepath.Dir(path)} {
		if root, err := tree.Open(above); err == nil {
			if tree.Device(root.Self) == tree.Device(folder.Self) {
				folder.Close()
				return root, pid, nil
			}
			root.Close()
		}
	}
	return folder, pid, nil
}

// openOnHost opens a folder as process 1 sees it. Its name is the path there.
func openOnHost(path string) (*tree.Dir, error) {
	if path == "" {
		return nil, os.ErrNotExist
	}
	fd, err := unix.Open(filepath.Join("/proc/1/root", path), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return tree.New(os.NewFile(uintptr(fd), path))
}

// sameFolders returns the mount points below a mount, given by its ID, at which a process sees the
// folder of the mount itself. The unit of this service creates such mounts, for example at
// /var/log, so that the service may write there.
func sameFolders(mount uint64, pid int) map[string]bool {
	list, err := mounts.Read(filepath.Join("/proc", strconv.Itoa(pid), "mountinfo"), nil)
	base := slices.IndexFunc(list, func(m *mounts.Info) bool { return uint64(m.ID) == mount })
	if err != nil || base < 0 {
		return nil
	}
	same := map[string]bool{}
	for _, m := range list {
		inside, err := filepath.Rel(list[base].Mountpoint, m.Mountpoint)
		if err == nil && m.Major == list[base].Major && m.Minor == list[base].Minor && m.Root == filepath.Join(list[base].Root, inside) {
			same[m.Mountpoint] = true
		}
	}
	return same
}

// add adds an entry to all folders above it. A folder also counts for itself.
func (w *weights) add(e tree.Entry) {
	if e.In == nil {
		w.root = e.Folder
	}
	for at := cmp.Or(e.Folder, e.In); at != nil; at = at.Parent {
		if at.Depth <= folderDepth {
			w.count(at, e.Stat.Blocks*512)
		}
	}
}

// count adds an entry to a folder. If the memory limit is reached, it counts only for the folders
// above.
func (w *weights) count(f *tree.Folder, bytes uint64) {
	sum := w.folders[f]
	if sum == nil {
		if w.bytes+f.Bytes() > walkBytes {
			return
		}
		w.bytes += f.Bytes()
		sum = &weight{}
		w.folders[f] = sum
	}
	sum.bytes += bytes
	sum.inodes++
}

// largest returns the folders with a large share of the total. Listed folders below a folder do not
// count for it, and its figures do not include them.
func (w *weights) largest(byInodes bool) []gc.Folder {
	all := w.folders[w.root]
	if all == nil {
		return nil
	}
	least := max(1, all.of(byInodes)/heavyShare)
	var heavy []*tree.Folder
	for f, sum := range w.folders {
		if sum.of(byInodes) >= least {
			heavy = append(heavy, f)
		}
	}
	slices.SortFunc(heavy, func(a, b *tree.Folder) int { return cmp.Compare(b.Depth, a.Depth) })
	var named []gc.Folder
	below := make(map[*tree.Folder]weight) // content of listed folders, by each folder above them
	for _, f := range heavy {
		rest := weight{w.folders[f].bytes - below[f].bytes, w.folders[f].inodes - below[f].inodes}
		if rest.of(byInodes) < least {
			continue
		}
		named = append(named, gc.Folder{Path: f.Path(), SizeBytes: rest.bytes, Inodes: rest.inodes})
		for above := f.Parent; above != nil; above = above.Parent {
			below[above] = weight{below[above].bytes + rest.bytes, below[above].inodes + rest.inodes}
		}
	}
	slices.SortFunc(named, func(a, b gc.Folder) int {
		x, y := weight{a.SizeBytes, a.Inodes}, weight{b.SizeBytes, b.Inodes}
		return cmp.Or(cmp.Compare(y.of(byInodes), x.of(byInodes)), strings.Compare(a.Path, b.Path))
	})
	return named[:min(len(named), maxFolders)]
}
