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
	mnt uint64 // the mount that it is in
	dev [2]uint32
}

func newDir(f *os.File) (*dir, error) {
	d := &dir{File: f}
	st, err := d.stat("")
	if err != nil {
		return nil, closing(f, err)
	}
	d.mnt, d.dev = st.Mnt_id, [2]uint32{st.Dev_major, st.Dev_minor}
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

// mount tells whether an entry is in another mount than d, and so not d's own. A
// kernel before 5.8 tells only that it is of another device.
func (d *dir) mount(st unix.Statx_t) bool {
	return st.Mnt_id != d.mnt || [2]uint32{st.Dev_major, st.Dev_minor} != d.dev
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
