package statefile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// How long a change may wait in memory until it is written.
const (
	saveDelay  = 5 * time.Second  // after File.Save
	lazyDelay  = 30 * time.Second // after File.SaveLazily
	retryDelay = 30 * time.Second // after a failed write
)

const (
	lockTimeout = time.Second
	lockRetry   = 50 * time.Millisecond
	// readTimeout is how long after Open the files that cannot be read are tried again, all together.
	readTimeout = 3 * time.Second
)

// formerFile is the state file of older builds. It is not read.
const formerFile = "state.db"

// ErrLocked means that another process, such as a second agent on this host, uses the folder.
var ErrLocked = errors.New("state directory is in use by another hostler agent")

var errClosed = errors.New("state is closed")

// Health says whether state reaches the disk.
type Health struct {
	// Persisted says whether the files can be written. It becomes false with the first failed
	// write, and true again once everything is written.
	Persisted bool
	// Message says why Persisted is false, such as "not persisted: write
	// /var/lib/hostler/nodes.state: no space left on device". It is empty if Persisted is true.
	Message string
	// SetAside is the new name of the last file that was renamed because it could not be used. It
	// is empty if none was renamed since Open.
	SetAside string
}

// Folder is the folder of all state files. All methods are safe for concurrent use.
type Folder struct {
	path string // empty for memory only
	// patience is until when a file that cannot be read is tried again.
	patience time.Time
	log      *slog.Logger
	wake     chan struct{} // holds one token when a file's due time has changed

	// disk is held during file operations, which may block as long as the disk does. It is locked
	// before mu, never while mu is held.
	disk   sync.Mutex
	locked *os.File // the folder with its flock; nil while it could not be locked

	mu       sync.Mutex // guards the fields below, and the fields of Files that name it; held briefly
	files    []*File
	retry    time.Time // when to write again after an error
	err      error     // why the last write failed
	setAside string
	closed   bool
}

// Open locks the folder at path, and creates it (0700) if it is missing. The only error is
// ErrLocked. In all other cases the Folder works, if necessary from memory, and Health reports
// problems.
//
// The caller runs Run, which writes changes, and calls Close at the end.
func Open(path string, log *slog.Logger) (*Folder, error) {
	f := &Folder{path: path, patience: time.Now().Add(readTimeout), log: log.With("component", "state"), wake: make(chan struct{}, 1)}
	f.disk.Lock()
	defer f.disk.Unlock()
	err := f.prepare()
	if errors.Is(err, ErrLocked) {
		return nil, fmt.Errorf("open %s: %w; run `systemctl status hostler` to find it, or set state.directory", path, ErrLocked)
	}
	if err != nil {
		f.failed(err)
	}
	former := filepath.Join(path, formerFile)
	if _, err := os.Lstat(former); err == nil {
		f.log.Info("ignored state file of an earlier build, delete it", "path", former)
	}
	return f, nil
}

// NewMemory returns a Folder that never uses a disk.
func NewMemory() *Folder {
	return &Folder{log: slog.New(slog.DiscardHandler), wake: make(chan struct{}, 1)}
}

// File returns the store of one kind of state. The name is a constant of its owner.
func (f *Folder) File(name string) *File {
	return f.file(name + ".state")
}

func (f *Folder) file(name string) *File {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, file := range f.files {
		if file.name == name {
			return file
		}
	}
	file := &File{folder: f, name: name}
	f.files = append(f.files, file)
	return file
}

// Health returns whether state reaches the disk, and problems.
func (f *Folder) Health() Health {
	f.mu.Lock()
	defer f.mu.Unlock()
	h := Health{Persisted: f.path != "" && f.err == nil, SetAside: f.setAside}
	switch {
	case f.path == "":
		h.Message = "not persisted: kept in memory only"
	case f.err != nil:
		h.Message = "not persisted: " + f.err.Error()
	}
	return h
}

// Run writes changes until ctx ends, and returns the cause. It writes nothing while nothing
// changes. Changes that are pending when it returns are written by Close.
func (f *Folder) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-f.wake:
		case <-timer.C:
		}
		due := f.due()
		switch wait := time.Until(due); {
		case due.IsZero():
			timer.Stop()
		case wait > 0:
			timer.Reset(wait)
		default:
			_ = f.write(false, nil) // the error is in Health and in the log
			timer.Reset(0)
		}
	}
}

// due returns when to write next, or zero if nothing is pending.
func (f *Folder) due() (next time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.path == "":
		return time.Time{} // nothing can be written any more
	case f.err != nil:
		return f.retry
	}
	for _, file := range f.files {
		if due := file.due; next.IsZero() || !due.IsZero() && due.Before(next) {
			next = due
		}
	}
	return next
}

// Flush writes all pending changes, and returns after they are synced. After an error they stay
// pending.
func (f *Folder) Flush() error { return f.write(true, nil) }

// write writes the files that are due, or all pending ones. After an error it tries all files, so
// that Health covers all of them. It returns the error of one file, or any error if of is nil.
func (f *Folder) write(all bool, of *File) error {
	if f.path == "" {
		return nil
	}
	f.disk.Lock()
	defer f.disk.Unlock()
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return errClosed
	}
	failing := f.err != nil
	var files []*File
	for _, file := range f.files {
		if !file.due.IsZero() && (all || failing || !file.due.After(time.Now())) {
			files = append(files, file)
			file.due = time.Time{}
		}
	}
	f.mu.Unlock()
	if len(files) == 0 && !failing {
		return nil
	}
	unwritable := f.prepare()
	errs := make([]error, len(files))
	var writes sync.WaitGroup
	for i, file := range files {
		// Concurrent writes are faster, because the file system syncs them together.
		writes.Go(func() {
			errs[i] = unwritable
			if unwritable == nil {
				errs[i] = file.write()
			}
			if errs[i] != nil {
				file.markPending()
			}
		})
	}
	writes.Wait()
	failure, own := unwritable, unwritable
	for i, err := range errs {
		failure = cmp.Or(failure, err)
		if files[i] == of {
			own = err
		}
	}
	if failure != nil {
		f.failed(failure)
		if of != nil {
			return own
		}
		return failure
	}
	f.mu.Lock()
	f.err = nil
	f.mu.Unlock()
	if failing {
		f.log.Info("state persisted again", "path", f.path)
	}
	return nil
}

// Close writes pending changes and unlocks the folder. Call it once, after all owners of state have
// ended: changes that they save later are not written.
func (f *Folder) Close() error {
	err := f.Flush()
	f.disk.Lock()
	defer f.disk.Unlock()
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	if f.locked != nil {
		err = errors.Join(err, f.locked.Close())
		f.locked = nil
	}
	return err
}

// prepare locks the folder, and creates it if it is missing. It returns why files cannot be written
// there. The caller holds disk.
func (f *Folder) prepare() error {
	if err := os.MkdirAll(f.path, 0o700); err != nil {
		return err
	}
	if f.locked == nil {
		if err := f.lock(); err != nil {
			return err
		}
	}
	if err := unix.Access(f.path, unix.W_OK); err != nil {
		return fmt.Errorf("write %s: %w", f.path, err)
	}
	return nil
}

// lock takes an flock(2) on the folder itself. It ends with the process and needs no file, so it
// works if the disk is full or read-only. The caller holds disk.
func (f *Folder) lock() error {
	for deadline := time.Now().Add(lockTimeout); ; time.Sleep(lockRetry) {
		folder, err := os.OpenFile(f.path, os.O_RDONLY|syscall.O_DIRECTORY, 0)
		if err != nil {
			return err
		}
		if err = unix.Flock(int(folder.Fd()), unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
			_ = folder.Close() // nothing was written
			if time.Now().After(deadline) {
				return ErrLocked
			}
			continue
		}
		if err != nil { // NFS cannot lock folders
			f.log.Warn("cannot lock state directory, a second agent is not detected", "path", f.path, "error", err)
		}
		f.locked = folder
		return nil
	}
}

// failed records a failed write, and logs the first one.
func (f *Folder) failed(err error) {
	f.mu.Lock()
	began := f.err == nil
	f.err, f.retry = err, time.Now().Add(retryDelay)
	f.trigger()
	f.mu.Unlock()
	if began {
		f.log.Warn("cannot persist state, continuing in memory", "path", f.path, "error", err)
	}
}

// trigger wakes Run, which then computes the next write. The caller holds mu.
func (f *Folder) trigger() {
	select {
	case f.wake <- struct{}{}:
	default: // an earlier token is still there
	}
}
