// Package tree reads folders that users other than root may control, such as folders that
// containers write.
//
// It opens them by descriptor, one name at a time and without following links, so that nobody can
// redirect a reader by replacing a folder. It reads in batches, with bounded memory and
// descriptors. It does not judge what it finds.
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

// atOnce is how many entries of a folder are read together: a folder may hold millions.
const atOnce = 256

// Dir is an open folder. A name in it is one step: no link is followed.
type Dir struct {
	file *os.File
	// Self is what the folder was when it was opened, with the ID of its mount (Linux 5.8).
	Self unix.Statx_t
}

// Open opens a folder by its path. It follows links, so the path must be one that only root can change.
func Open(path string) (*Dir, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	return New(f)
}

// New is the Dir of a folder that is open. It closes the file if it fails.
func New(folder *os.File) (*Dir, error) {
	d := &Dir{file: folder}
	var err error
	if d.Self, err = d.Stat(""); err != nil {
		_ = folder.Close() // it was only read
		return nil, err
	}
	return d, nil
}

// Open opens a folder in d. It fails if that is a link.
func (d *Dir) Open(name string) (*Dir, error) { return d.openAs(filepath.Join(d.Name(), name), name) }

// openAs is Open of a folder that is then called so.
func (d *Dir) openAs(called, name string) (*Dir, error) {
	fd, err := d.open(name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	return New(os.NewFile(uintptr(fd), called))
}

// OpenFile opens an existing file in d with these flags. It fails if that is a link.
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

// Name is the path by which the folder was opened.
func (d *Dir) Name() string { return d.file.Name() }

// Close closes the folder.
func (d *Dir) Close() { _ = d.file.Close() } // it was only read

// Names reads the names in the folder in batches, in no order. An error is the last element.
func (d *Dir) Names() iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if _, err := d.file.Seek(0, io.SeekStart); err != nil {
			yield("", err)
			return
		}
		for {
			names, err := d.file.Readdirnames(atOnce)
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

// Stat inspects an entry; with an empty name, the folder itself.
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

// Remove removes an entry; flags are those of unlinkat(2).
func (d *Dir) Remove(name string, flags int) error {
	if err := unix.Unlinkat(d.fd(), name, flags); err != nil {
		return d.fault("remove", name, err)
	}
	return nil
}

// Readlink returns where a link in the folder leads.
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

// Names reads the names in the folder at a path, as Open and Dir.Names do.
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

// Device is the number of the device that an entry is on.
func Device(st unix.Statx_t) uint64 { return unix.Mkdev(st.Dev_major, st.Dev_minor) }

// Gone reports whether an error says that an entry is not there any more, or was replaced by something
// else than the folder that it was.
func Gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP)
}

// retry repeats a call that a signal has interrupted, as may happen on FUSE and network file systems.
func retry(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
