package probe

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"hostler.io/hostler/internal/mounts"
)

// Filesystem is the mount that contains a folder, with its usage. Available is what an unprivileged
// process can still use.
type Filesystem struct {
	Path       string // the requested folder
	Mountpoint string // empty if the mount is unknown
	Device     string // source of the mount, such as "/dev/sda2" or "tmpfs"
	Type       string // such as "ext4"
	ReadOnly   bool

	CapacityBytes  uint64
	AvailableBytes uint64
	Inodes         uint64 // 0 if the filesystem does not count them, as on btrfs
	InodesFree     uint64

	Absent  bool   // the folder does not exist
	Problem string // why it was not measured; empty if it was
}

// mount is one mount, with the host's names.
type mount struct {
	key                      mountKey
	mountpoint, device, kind string
}

// mountKey identifies a mount. It includes the device, because the kernel reuses the IDs of
// unmounted mounts.
type mountKey struct {
	id           uint64 // from statx; 0 if unknown
	major, minor uint32
}

// question is a statfs call in progress. It blocks if a filesystem does not answer, such as NFS
// without its server.
type question struct {
	done   chan struct{} // closed when answer is set
	answer answer
}

type answer struct {
	statfs unix.Statfs_t
	mount  mountKey
	err    error
}

func (r *Reader) filesystems(ctx context.Context, folders []string) []Filesystem {
	questions := make([]*question, len(folders))
	for i, folder := range folders {
		questions[i] = r.ask(folder)
	}
	result := make([]Filesystem, len(folders))
	for i, folder := range folders {
		if questions[i].wait(ctx) {
			result[i] = r.filesystem(folder, questions[i].answer)
		} else {
			result[i] = Filesystem{Path: folder, Problem: fmt.Sprintf(
				"statfs %s: no answer from the filesystem; if it is a network mount, check whether its server is reachable", folder)}
		}
	}
	return result
}

// wait waits for the answer until ctx ends, and reports whether it has arrived. It prefers the
// answer even if ctx has ended, so that a folder that hangs does not affect the others.
func (q *question) wait(ctx context.Context) bool {
	select {
	case <-q.done:
		return true
	default:
	}
	select {
	case <-q.done:
		return true
	case <-ctx.Done():
		return false
	}
}

// ask starts a statfs call, or returns the one in progress: threads that hang in the kernel must
// not accumulate.
func (r *Reader) ask(folder string) *question {
	r.mu.Lock()
	defer r.mu.Unlock()
	if q := r.asked[folder]; q != nil {
		return q
	}
	q := &question{done: make(chan struct{})}
	r.asked[folder] = q
	go func() {
		q.answer = stat(folder)
		r.mu.Lock()
		delete(r.asked, folder)
		r.mu.Unlock()
		close(q.done)
	}()
	return q
}

func stat(folder string) answer {
	var a answer
	for {
		a.err = unix.Statfs(folder, &a.statfs)
		if !errors.Is(a.err, unix.EINTR) {
			break
		}
	}
	if a.err != nil {
		return a
	}
	// Before Linux 5.8, statx has no mount ID; then the mount is found by path.
	var s unix.Statx_t
	if unix.Statx(unix.AT_FDCWD, folder, unix.AT_STATX_DONT_SYNC, unix.STATX_MNT_ID, &s) == nil && s.Mask&unix.STATX_MNT_ID != 0 {
		a.mount = mountKey{id: s.Mnt_id, major: s.Dev_major, minor: s.Dev_minor}
	}
	return a
}

func (r *Reader) filesystem(folder string, a answer) Filesystem {
	fs := Filesystem{Path: folder}
	if a.err != nil {
		fs.Problem = fmt.Sprintf("statfs %s: %v", folder, a.err)
		fs.Absent = errors.Is(a.err, unix.ENOENT)
		return fs
	}
	blockSize := uint64(a.statfs.Frsize)
	if blockSize == 0 {
		blockSize = uint64(a.statfs.Bsize)
	}
	fs.CapacityBytes = a.statfs.Blocks * blockSize
	fs.AvailableBytes = a.statfs.Bavail * blockSize
	fs.Inodes = a.statfs.Files
	fs.InodesFree = a.statfs.Ffree
	fs.ReadOnly = a.statfs.Flags&unix.ST_RDONLY != 0

	m := r.mountOf(folder, a.mount)
	fs.Mountpoint, fs.Device, fs.Type = m.mountpoint, m.device, m.kind
	if fs.CapacityBytes == 0 {
		fs.Problem = fmt.Sprintf("statfs %s: the filesystem (%s) reports no capacity", folder, fs.Type)
	}
	return fs
}

// mountOf returns a folder's mount. It reads the table of mounts, which grows with every container,
// only if the folder is on another mount than before.
func (r *Reader) mountOf(folder string, key mountKey) mount {
	r.mu.Lock()
	known, found := r.mounts[folder]
	r.mu.Unlock()
	if found && key.id != 0 && known.key == key {
		return known
	}
	m := r.mountAt(folder, key.id)
	m.key = key
	if m.mountpoint != "" { // otherwise the table could not be read, and is read again
		r.mu.Lock()
		r.mounts[folder] = m
		r.mu.Unlock()
	}
	return m
}

// mountAt returns the mount of a folder, by its ID if that is not 0. It returns the mount that
// other processes see, not the agent's own mounts, such as that of StateDirectory=.
func (r *Reader) mountAt(folder string, id uint64) mount {
	real := folder
	if p, err := filepath.EvalSymlinks(folder); err == nil {
		real = p
	}
	own := r.findMount("/proc/self/mountinfo", real, id)
	if own == nil {
		return mount{}
	}
	if host := r.findMount("/proc/1/mountinfo", real, 0); host != nil && host.Major == own.Major && host.Minor == own.Minor {
		own = host
	}
	return mount{mountpoint: own.Mountpoint, device: own.Source, kind: own.FSType}
}

// findMount returns the mount with that ID or, if the ID is 0, the mount that contains path, from a
// table of mounts. It returns nil if there is none.
func (r *Reader) findMount(file, path string, id uint64) (best *mounts.Info) {
	_, err := mounts.Read(r.path(file), func(i *mounts.Info) (skip, stop bool) {
		if id != 0 {
			if uint64(i.ID) == id {
				best = i
				return true, true
			}
			return true, false
		}
		// If several mounts have the same mount point, the last one is visible.
		if holds(i.Mountpoint, path) && (best == nil || len(i.Mountpoint) >= len(best.Mountpoint)) {
			best = i
		}
		return true, false
	})
	if err != nil {
		return nil
	}
	return best
}

// holds reports whether path is the mount point or below it.
func holds(mountpoint, path string) bool {
	return mountpoint == "/" || path == mountpoint || strings.HasPrefix(path, mountpoint+"/")
}
