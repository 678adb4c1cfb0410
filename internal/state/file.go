package state

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
	"golang.org/x/sys/unix"

	"hostler.io/hostler/internal/atomicfile"
)

const (
	lockTimeout = time.Second
	lockRetry   = 50 * time.Millisecond

	// maxSizeBytes bounds the file. What is kept is bounded by its owners and
	// comes to a few MiB; a file that outgrows this has something wrong with it.
	maxSizeBytes = 64 << 20

	// keptAside is how many files that were set aside are kept beside the live
	// one.
	keptAside = 3

	suffixCorrupt    = "corrupt"
	suffixUnreadable = "unreadable"
)

// errDamaged tells that the file's content made no sense, or could not be read.
var errDamaged = errors.New("damaged")

// unusableError tells that a file has to be set aside. It is still locked, so
// that no other agent does the same; release unlocks it.
type unusableError struct {
	suffix  string // what its new name says of it
	err     error
	release func()
}

func (e *unusableError) Error() string { return e.err.Error() }
func (e *unusableError) Unwrap() error { return e.err }

// file is an open bbolt file. Its methods turn a fault inside bbolt into
// errDamaged; after that only abandon may be called.
type file struct {
	bolt     *bbolt.DB
	fd       *os.File
	readOnly bool
	why      error // why it is open for reading only
}

// openFile opens path for writing, or for reading only with the reason in why
// where the disk allows no more. ErrLocked where another process has it; an
// unusableError where it must be set aside first.
func openFile(path string, s schema) (*file, error) {
	f, err := openBolt(path, false)
	if err != nil && (errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS)) {
		if ro, roErr := openBolt(path, true); roErr == nil {
			ro.readOnly, ro.why = true, err
			f, err = ro, nil
		}
	}
	if err != nil {
		return nil, err
	}
	err = f.prepare(s)
	if err == nil {
		return f, nil
	}
	release := func() { _ = f.close() } // the error before it says more
	if errors.Is(err, errDamaged) {
		release = f.abandon
	}
	var unusable *unusableError
	if errors.As(err, &unusable) {
		unusable.release = release
	} else {
		release()
	}
	return nil, err
}

func openBolt(path string, readOnly bool) (*file, error) {
	f := &file{}
	options := *bbolt.DefaultOptions
	options.ReadOnly = readOnly
	options.NoStatistics = true
	options.MaxSize = maxSizeBytes
	options.Timeout = lockTimeout
	// bbolt neither checks the file before it maps it nor closes it when it
	// panics: both are done here, under bbolt's own lock.
	options.OpenFile = func(path string, flag int, mode fs.FileMode) (*os.File, error) {
		fd, err := openLocked(path, flag, mode, readOnly)
		if err != nil {
			return nil, err
		}
		f.fd = fd
		if err := verifyFile(fd); err != nil {
			return nil, err // and not fd, which bbolt would unlock
		}
		return fd, nil
	}
	err := guard(func() (err error) {
		f.bolt, err = bbolt.Open(path, 0o600, &options)
		return err
	})
	switch {
	case err == nil:
		return f, nil
	case errors.Is(err, bolterrors.ErrTimeout):
		return nil, ErrLocked
	case errors.Is(err, errDamaged), errors.Is(err, bolterrors.ErrInvalid),
		errors.Is(err, bolterrors.ErrChecksum), errors.Is(err, bolterrors.ErrVersionMismatch):
		return nil, &unusableError{suffix: suffixCorrupt, err: err, release: f.abandon}
	}
	f.abandon()
	return nil, err
}

// openLocked opens the file and takes the lock that bbolt takes, before anything
// is read. It makes sure that the locked file is still the one at path, for the
// agent that held the lock before may have set it aside.
func openLocked(path string, flag int, mode fs.FileMode, shared bool) (*os.File, error) {
	how := unix.LOCK_EX
	if shared {
		how = unix.LOCK_SH
	}
	for deadline := time.Now().Add(lockTimeout); ; time.Sleep(lockRetry) {
		fd, err := os.OpenFile(path, flag|syscall.O_NONBLOCK, mode)
		if err != nil {
			return nil, err
		}
		info, err := fd.Stat()
		if err == nil && !info.Mode().IsRegular() {
			err = fmt.Errorf("open %s: not a regular file", path)
		}
		if err == nil {
			err = unix.Flock(int(fd.Fd()), how|unix.LOCK_NB)
		}
		if err == nil {
			if now, statErr := os.Stat(path); statErr == nil && os.SameFile(info, now) {
				if !shared && info.Mode().Perm()&0o077 != 0 {
					_ = fd.Chmod(0o600) // best effort: the folder is closed to others anyway
				}
				return fd, nil
			}
			err = unix.EWOULDBLOCK
		}
		_ = fd.Close() // nothing was written
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, err
		}
		if time.Now().After(deadline) {
			return nil, ErrLocked
		}
	}
}

// verifyFile tells whether bbolt can work on the file without a fault.
func verifyFile(fd *os.File) error {
	info, err := fd.Stat()
	if err != nil {
		return err
	}
	if info.Size() == 0 {
		return nil // bbolt makes a new one of it
	}
	return verify(fd, info.Size())
}

// prepare checks the version and migrates.
func (f *file) prepare(s schema) error {
	var from version
	err := f.view(func(tx *bbolt.Tx) (err error) {
		from, err = s.stored(tx)
		return err
	})
	switch {
	case err != nil:
		return &unusableError{suffix: suffixCorrupt, err: err}
	case from.Major > s.major:
		return &unusableError{
			suffix: fmt.Sprintf("v%d", from.Major),
			err:    fmt.Errorf("written by a newer hostler: its version is %d, the newest known here %d", from.Major, s.major),
		}
	case !s.older(from):
		return nil
	case f.readOnly && from.Major != 0 && from.Major < s.major:
		return fmt.Errorf("%w, and its version %d has to be migrated", f.why, from.Major)
	case f.readOnly:
		return nil
	}
	err = f.update(func(tx *bbolt.Tx) error { return s.migrate(tx, from) })
	if err == nil {
		return atomicfile.SyncFolder(filepath.Dir(f.bolt.Path()))
	}
	if from.Major != 0 && !noSpace(err) {
		return &unusableError{suffix: suffixCorrupt, err: err}
	}
	return err
}

func noSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EIO) || errors.Is(err, syscall.EROFS)
}

func (f *file) update(fn func(*bbolt.Tx) error) error {
	return guard(func() error { return f.bolt.Update(fn) })
}

func (f *file) view(fn func(*bbolt.Tx) error) error {
	return guard(func() error { return f.bolt.View(fn) })
}

// read returns a copy of all that a bucket holds.
func (f *file) read(bucket string) (map[string][]byte, error) {
	values := map[string][]byte{}
	err := f.view(func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte(bucket))
		if b == nil {
			return nil
		}
		return b.ForEach(func(key, value []byte) error {
			if value != nil { // else a bucket within, which hostler never makes
				values[string(key)] = append([]byte{}, value...)
			}
			return nil
		})
	})
	return values, err
}

// has tells whether the file holds the key, and true where it cannot tell.
func (f *file) has(bucket, key string) bool {
	found := true
	err := f.view(func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte(bucket))
		found = b != nil && b.Get([]byte(key)) != nil
		return nil
	})
	return found || err != nil
}

func (f *file) close() error {
	return guard(f.bolt.Close)
}

// abandon gives back the descriptor, and with it the lock, of a file in which
// bbolt has panicked. The memory map is leaked: pages of it may still be
// referred to.
func (f *file) abandon() {
	if f.fd != nil {
		_ = f.fd.Close() // already given up
	}
}

// guard runs fn and turns a panic into errDamaged; a memory fault as well, which
// is what reading a mapped file gives where the file has shrunk or the disk
// cannot read it.
func guard(fn func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: %v", errDamaged, r)
		}
	}()
	return fn()
}

// cause strips the path that a *fs.PathError repeats.
func cause(err error) error {
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		return pathErr.Err
	}
	return err
}

// setAside renames the file at path to path.suffix-time and keeps only the
// latest few of such files.
func setAside(path, suffix string, now time.Time) (string, error) {
	to := path + "." + suffix + "-" + now.UTC().Format("20060102T150405.000000000Z")
	if err := os.Rename(path, to); err != nil {
		return "", err
	}
	old, err := filepath.Glob(path + ".*-[0-9]*T[0-9]*Z")
	if err != nil {
		return to, nil // a path with a pattern in it: nothing to tidy
	}
	old = slices.DeleteFunc(old, func(name string) bool { return name == to }) // the latest, whatever the clock says
	slices.SortFunc(old, func(a, b string) int { return strings.Compare(asideTime(a), asideTime(b)) })
	for len(old) >= keptAside {
		_ = os.Remove(old[0]) // tried again with the next one set aside
		old = old[1:]
	}
	return to, atomicfile.SyncFolder(filepath.Dir(path))
}

// asideTime is the part of the name from the time on, which sorts by age.
func asideTime(path string) string {
	return path[strings.LastIndexByte(path, '-'):]
}
