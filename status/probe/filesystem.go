package probe

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// Filesystem is the mount that holds a folder, and how full it is. Available is
// what a process without privileges may still use.
type Filesystem struct {
	Path       string // the folder that was requested
	Mountpoint string // empty if the mount is unknown
	Device     string // source of the mount, such as "/dev/sda2" or "tmpfs"
	Type       string // such as "ext4"
	ReadOnly   bool

	CapacityBytes  uint64
	AvailableBytes uint64
	Inodes         uint64 // 0 where the filesystem does not count them, as on btrfs
	InodesFree     uint64

	Absent  bool   // the folder is not there
	Problem string // why it was not measured; empty if it was
}

// mount is one mount, by the names that the host has for it.
type mount struct {
	key                      mountKey
	mountpoint, device, kind string
}

// mountKey distinguishes one mount from another. The device belongs to it because the
// kernel gives the ID of a mount that is gone to the next one.
type mountKey struct {
	id           uint64 // as statx reports it; 0 if it does not
	major, minor uint32
}

// question is one statfs in progress. A filesystem that does not answer, such as NFS without its
// server, blocks it.
type question struct {
	done   chan struct{} // closed once the answer stands
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

// wait reports whether the answer has arrived, at the latest when ctx ends. An answer counts even
// then: one folder that hangs must not affect the others.
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

// ask starts a statfs, or joins the one that has not been answered yet: threads
// that hang in the kernel must not grow in number.
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
	// Before Linux 5.8 statx has no mount ID; the mount is then found by path.
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

// mountOf finds a folder's mount. It reads the table of mounts, which grows with
// every container, only when the folder has come to lie on another mount.
func (r *Reader) mountOf(folder string, key mountKey) mount {
	r.mu.Lock()
	known, found := r.mounts[folder]
	r.mu.Unlock()
	if found && key.id != 0 && known.key == key {
		return known
	}
	m := r.mountAt(folder, key.id)
	m.key = key
	r.mu.Lock()
	r.mounts[folder] = m
	r.mu.Unlock()
	return m
}

// mountAt finds the mount of a folder, by its ID if that is not 0. It returns the mount that other
// processes see, not mounts of the agent itself, such as that of StateDirectory=.
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

// findMount finds the mount of that ID, or, if that is 0, the one that holds path, in a table
// of mounts; nil if there is none.
func (r *Reader) findMount(file, path string, id uint64) (best *mountinfo.Info) {
	table, err := os.Open(r.path(file))
	if err != nil {
		return nil
	}
	defer table.Close()
	_, err = mountinfo.GetMountsFromReader(table, func(i *mountinfo.Info) (skip, stop bool) {
		if id != 0 {
			if uint64(i.ID) == id {
				best = i
				return true, true
			}
			return true, false
		}
		// Of mounts on one folder the last one listed lies on top.
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

// holds reports whether path lies at or below the folder of the mount.
func holds(mountpoint, path string) bool {
	return mountpoint == "/" || path == mountpoint || strings.HasPrefix(path, mountpoint+"/")
}
