package meter

import (
	"cmp"
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"hostler.io/hostler/gc"
	"hostler.io/hostler/runtime"
)

const (
	maxFolders  = 8
	folderDepth = 6         // below the root, as deep as runtimes keep one folder a container below /
	heavyShare  = 100       // a folder is named if it holds this part of all that was found
	walkEntries = 1_000_000 // a few seconds, where they are in memory
	walkLimit   = 5 * time.Second
)

// Folders names the largest folders of the filesystem that a runtime keeps images on, largest
// first, in bytes or in inodes. It looks at so many files only as take seconds, those in few
// folders first: on a host with more of them the figures are too low, as AtLeast says.
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

// weights are folders below a root by what they hold.
type weights struct {
	root    string
	folders map[string]*gc.Folder // the root itself under its own path
	cut     bool                  // there is more than was looked at
}

// weigh adds up what lies where on the filesystem of a folder: below its mount point, or, where
// another mount hides that, in the folder above. It follows no link and enters no other mount;
// a file of several names counts under one of them.
func weigh(path, mountpoint string, most int, until time.Time) (weights, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return weights{}, err
	}
	device := st.Dev
	w := weights{root: path, folders: make(map[string]*gc.Folder)}
	for _, above := range []string{mountpoint, filepath.Dir(path)} {
		if unix.Stat(above, &st) == nil && st.Dev == device {
			w.root = above
			break
		}
	}
	mount := mountID(w.root)
	mounts := map[uint64]bool{mount: true} // that are walked
	same := sameFolders(mount)
	seen := make(map[[2]uint64]bool) // devices and inodes of what has several names
	entries := 0
	walk(w.root, func(path string) (isFolder, goOn bool) {
		if entries++; entries > most || entries%1000 == 0 && time.Now().After(until) {
			w.cut = true
			return false, false
		}
		var st unix.Stat_t
		if unix.Lstat(path, &st) != nil {
			return false, true // gone meanwhile, or not to be read: what is left is told
		}
		isFolder = st.Mode&unix.S_IFMT == unix.S_IFDIR
		// A file on an overlay may tell the device of the layer that it lies in.
		if isFolder && same[path] {
			mounts[mountID(path)] = true
		}
		if isFolder && (st.Dev != device || !mounts[mountID(path)]) {
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

// mountID is of the mount that a folder is on: a filesystem may have several. It is 0 on
// kernels before 5.8.
func mountID(path string) uint64 {
	var st unix.Statx_t
	if unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT, unix.STATX_MNT_ID, &st) != nil || st.Mask&unix.STATX_MNT_ID == 0 {
		return 0
	}
	return st.Mnt_id
}

// sameFolders are the mount points below a mount, given by its ID, at which the folder is mounted that
// would be there without the mount. The unit of this service makes such mounts, for example of
// /var/log, which the service may write.
func sameFolders(mount uint64) map[string]bool {
	list, err := mountinfo.GetMounts(nil)
	base := slices.IndexFunc(list, func(m *mountinfo.Info) bool { return uint64(m.ID) == mount })
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

// depth is how many folders a folder is below /.
func depth(path string) int { return strings.Count(strings.TrimSuffix(path, "/"), "/") }

// readAtOnce is how many entries of a folder are read together: one may hold
// millions.
const readAtOnce = 256

// walk calls look for root and for all that is below it, level by level, as long as that says
// to go on. What cannot be read is passed over.
func walk(root string, look func(path string) (isFolder, goOn bool)) {
	isFolder, goOn := look(root)
	if !isFolder || !goOn {
		return
	}
	for folders := []string{root}; len(folders) > 0; {
		folder := folders[0]
		folders = folders[1:]
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

// largest names the folders in which the weight is. Each holds a share of all by itself, without
// the folders below it that are named as well, and its figures are of that.
func (w *weights) largest(byInodes bool) []gc.Folder {
	weight := func(f *gc.Folder) uint64 {
		if byInodes {
			return f.Inodes
		}
		return f.SizeBytes
	}
	all := w.folders[w.root]
	if all == nil {
		return nil
	}
	least := max(1, weight(all)/heavyShare)
	var named []gc.Folder
	deepestFirst := slices.SortedFunc(maps.Values(w.folders), func(a, b *gc.Folder) int {
		return cmp.Or(cmp.Compare(depth(b.Path), depth(a.Path)), strings.Compare(a.Path, b.Path))
	})
	below := make(map[string]gc.Folder) // what named folders hold, by each folder above them
	for _, f := range deepestFirst {
		rest := gc.Folder{Path: f.Path, SizeBytes: f.SizeBytes - below[f.Path].SizeBytes, Inodes: f.Inodes - below[f.Path].Inodes}
		if weight(&rest) < least {
			continue
		}
		named = append(named, rest)
		for above := f.Path; above != w.root; {
			above = filepath.Dir(above)
			b := below[above]
			below[above] = gc.Folder{SizeBytes: b.SizeBytes + rest.SizeBytes, Inodes: b.Inodes + rest.Inodes}
		}
	}
	slices.SortFunc(named, func(a, b gc.Folder) int {
		return cmp.Or(cmp.Compare(weight(&b), weight(&a)), strings.Compare(a.Path, b.Path))
	})
	return named[:min(len(named), maxFolders)]
}
