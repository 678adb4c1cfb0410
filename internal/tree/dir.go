// Package tree reads folders that users other than root may control, such as folders of containers.
//
// It opens them by descriptor, one name at a time and without following links, so that replacing a
// folder cannot redirect it. It reads in batches, with bounded memory and descriptors. It does not
// judge the content.
package tree

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// batchSize is the batch size for entries: a folder may contain millions.
const batchSize = 256

// Dir is an open folder. Names are single path elements, and links are not followed.
type Dir struct {
	file *os.File
	// Self is the result of statx on the open folder, with its mount ID (Linux 5.8).
	Self unix.Statx_t
}

// Open opens a folder by its path. It follows links, so only root may be able to change the path.
func Open(path string) (*Dir, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	return New(f)
}

// New returns a Dir for an open folder. It closes the file on error.
func New(folder *os.File) (*Dir, error) {
	d := &Dir{file: folder}
	var err error
	if d.Self, err = d.Stat(""); err != nil {
		_ = folder.Close() // opened only to read
		return nil, err
	}
	return d, nil
}

// Open opens a subfolder. It fails if the name is a link.
func (d *Dir) Open(name string) (*Dir, error) { return d.openAs(filepath.Join(d.Name(), name), name) }

// openAs is Open with the path that Name returns.
func (d *Dir) openAs(called, name string) (*Dir, error) {
	fd, err := d.open(name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	return New(os.NewFile(uintptr(fd), called))
}

// OpenFile opens an existing file with these flags. It fails if the name is a link.
func (d *Dir) OpenFile(name string, flags int) (*os.File, error) {
	fd, err := d.open(name, flags)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), filepath.Join(d.Name(), name)), nil
}

func (d *Dir) open(name string, flags int) (fd int, err error) {
	err = retry(func() (err error) {
		fd, err = unix.Openat(d.fd(), name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return -1, d.fault("open", name, err)
	}
	return fd, nil
}

// Name returns the path by which the folder was opened.
func (d *Dir) Name() string { return d.file.Name() }

// Close closes the folder.
func (d *Dir) Close() { _ = d.file.Close() } // opened only to read

// Names yields the names in the folder, unordered, read in batches. An error is the last element.
func (d *Dir) Names() iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if _, err := d.file.Seek(0, io.SeekStart); err != nil {
			yield("", err)
			return
		}
		for {
			names, err := d.file.Readdirnames(batchSize)
			for _, name := range names {
				if !yield(name, nil) {
					return
				}
			}
			if err != nil {
				if !errors.Is(err, io.EOF) {
					yield("", err)
				}
				return
			}
		}
	}
}

// Stat returns the statx result of an entry, or of the folder itself if name is empty.
func (d *Dir) Stat(name string) (unix.Statx_t, error) {
	var st unix.Statx_t
	err := retry(func() error {
		return unix.Statx(d.fd(), name, unix.AT_SYMLINK_NOFOLLOW|unix.AT_EMPTY_PATH|unix.AT_NO_AUTOMOUNT, unix.STATX_BASIC_STATS|unix.STATX_MNT_ID, &st)
	})
	if err != nil {
		return st, d.fault("inspect", name, err)
	}
	return st, nil
}

// Remove removes an entry. flags are those of unlinkat(2).
func (d *Dir) Remove(name string, flags int) error {
	if err := unix.Unlinkat(d.fd(), name, flags); err != nil {
		return d.fault("remove", name, err)
	}
	return nil
}

// Readlink returns the target of a link.
func (d *Dir) Readlink(name string) (string, error) {
	text := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(d.fd(), name, text)
	if err != nil {
		return "", d.fault("read link", name, err)
	}
	return string(text[:n]), nil
}

func (d *Dir) fd() int { return int(d.file.Fd()) }

func (d *Dir) fault(operation, name string, err error) error {
	return fmt.Errorf("%s %s: %w", operation, filepath.Join(d.Name(), name), err)
}

// Names is Open and Dir.Names for a path.
func Names(path string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		d, err := Open(path)
		if err != nil {
			yield("", err)
			return
		}
		defer d.Close()
		d.Names()(yield)
	}
}

// Device returns the device number of an entry.
func Device(st unix.Statx_t) uint64 { return unix.Mkdev(st.Dev_major, st.Dev_minor) }

// Gone reports whether an error means that an entry was removed, or that a folder was replaced by
// something else.
func Gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP)
}

// retry repeats a call while signals interrupt it, which happens on FUSE and network file systems.
func retry(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
