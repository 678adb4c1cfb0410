package podlogs

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// dir is an open folder. What is done by name in it goes no deeper than one step
// and follows no link: nobody who swaps a name for a link leads us elsewhere.
type dir struct {
	*os.File
	self unix.Statx_t
}

func newDir(f *os.File) (*dir, error) {
	d := &dir{File: f}
	st, err := d.stat("")
	if err != nil {
		return nil, closing(f, err)
	}
	d.self = st
	return d, nil
}

// closing closes a file that is of no use after err.
func closing(f *os.File, err error) error {
	_ = f.Close() // nothing was written
	return err
}

// open opens a folder in d.
func (d *dir) open(name string) (*dir, error) {
	fd, err := unix.Openat(int(d.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, d.fault("open", name, err)
	}
	return newDir(os.NewFile(uintptr(fd), filepath.Join(d.Name(), name)))
}

func (d *dir) names() ([]string, error) { return d.Readdirnames(-1) }

// stat looks at an entry, or with an empty name at d itself.
func (d *dir) stat(name string) (unix.Statx_t, error) {
	var st unix.Statx_t
	err := unix.Statx(int(d.Fd()), name, unix.AT_SYMLINK_NOFOLLOW|unix.AT_EMPTY_PATH|unix.AT_NO_AUTOMOUNT,
		unix.STATX_BASIC_STATS|unix.STATX_MNT_ID, &st)
	if err != nil {
		return st, d.fault("look at", name, err)
	}
	return st, nil
}

// mount reports whether an entry is in another mount than d, and so not d's own.
func (d *dir) mount(st unix.Statx_t) bool { return apart(d.self, st) }

// apart reports whether an entry of a folder is not on the folder's own filesystem.
// The kernel names the mount that each is in, from 5.8 on. The device says less: a
// file on an overlay may tell that of the layer which it lies in, while folders tell
// the overlay's (Documentation/filesystems/overlayfs.rst). For folders it counts
// besides, as that of a btrfs subvolume differs; for files only where the kernel
// names no mounts.
func apart(folder, entry unix.Statx_t) bool {
	named := folder.Mask&entry.Mask&unix.STATX_MNT_ID != 0
	if named && folder.Mnt_id != entry.Mnt_id {
		return true
	}
	if named && entry.Mode&unix.S_IFMT != unix.S_IFDIR {
		return false
	}
	return folder.Dev_major != entry.Dev_major || folder.Dev_minor != entry.Dev_minor
}

func (d *dir) unlink(name string, flags int) error {
	if err := unix.Unlinkat(int(d.Fd()), name, flags); err != nil {
		return d.fault("remove", name, err)
	}
	return nil
}

func (d *dir) readlink(name string) (string, error) {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(int(d.Fd()), name, buf)
	if err != nil {
		return "", d.fault("read link", name, err)
	}
	return string(buf[:n]), nil
}

func (d *dir) fault(operation, name string, err error) error {
	return fmt.Errorf("%s %s: %w", operation, filepath.Join(d.Name(), name), err)
}
