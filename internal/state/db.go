package state

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"go.etcd.io/bbolt"
)

// How long a change may wait in memory before it is written.
const (
	flushDelay     = 5 * time.Second  // after Bucket.Write
	lazyFlushDelay = 30 * time.Second // after Bucket.WriteLazily
	retryDelay     = 30 * time.Second // after a write that went wrong
)

// ErrLocked tells that another process has the state file open, which means
// that a second agent runs on this host.
var ErrLocked = errors.New("state file is in use by another hostler agent")

// errClosed is what a Bucket answers once its DB is closed.
var errClosed = errors.New("state is closed")

// Health tells how well the state is kept.
type Health struct {
	// Persisted tells whether the file can be written. It turns false with the
	// first write that fails and true again with the next that succeeds.
	Persisted bool
	// Message says why not Persisted, such as "not persisted: write
	// /var/lib/hostler/state.db: no space left on device"; else empty.
	Message string
	// SetAside is where the latest file that could not be used was moved to,
	// empty if none was since Open.
	SetAside string
}

// DB is the state file with the changes that have not reached it yet. All
// methods are safe for concurrent use.
type DB struct {
	path   string // empty: memory only, by choice
	schema schema
	log    *slog.Logger
	wake   chan struct{} // holds one token when due has changed

	// disk is held across work on the file, which may block for as long as the
	// disk does; it is taken before mu, never while mu is held.
	disk sync.Mutex
	file *file // nil while there is none

	mu       sync.Mutex // guards all below; held for moments only
	pending  changes
	due      time.Time // when pending has to be written; zero if nothing is pending
	err      error     // why the file cannot be written
	setAside string
	closed   bool
	notes    []*Notes
}

// Open opens the state file at path, creating it (0600) and its folder (0700)
// where they are missing. A file that cannot be used is set aside beside it. The
// only error is ErrLocked: in every other case the DB works, from memory if it
// must, and Health tells.
//
// The caller runs Run to have changes written, and Close at the end.
func Open(path string, log *slog.Logger) (*DB, error) {
	return openSchema(path, currentSchema(), log)
}

// NewMemory returns a DB that never touches a disk, for callers that want none.
func NewMemory() *DB {
	return &DB{log: slog.New(slog.DiscardHandler), wake: make(chan struct{}, 1), pending: changes{}}
}

func openSchema(path string, s schema, log *slog.Logger) (*DB, error) {
	db := &DB{path: path, schema: s, log: log.With("component", "state"), wake: make(chan struct{}, 1), pending: changes{}}
	db.disk.Lock()
	defer db.disk.Unlock()
	err := db.openFile()
	if errors.Is(err, ErrLocked) {
		return nil, fmt.Errorf("open %s: %w; only one may run: see systemctl status hostler, or set state.directory", path, ErrLocked)
	}
	if err != nil {
		db.failed(err)
	}
	return db, nil
}

// Health tells how well the state is kept.
func (db *DB) Health() Health {
	db.mu.Lock()
	defer db.mu.Unlock()
	h := Health{Persisted: db.path != "" && db.err == nil, SetAside: db.setAside}
	switch {
	case db.path == "":
		h.Message = "not persisted: kept in memory only"
	case db.err != nil:
		h.Message = "not persisted: " + db.err.Error()
	}
	return h
}

// Err returns why the state cannot be written at present, or nil. A DB made by
// NewMemory never has one.
func (db *DB) Err() error {
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.err
}

// Run writes changes behind until ctx ends, and returns why. It writes nothing
// while nothing changes. What is pending at the end is left to Close.
func (db *DB) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-db.wake:
		case <-timer.C:
		}
		db.mu.Lock()
		due := db.due
		db.mu.Unlock()
		switch wait := time.Until(due); {
		case due.IsZero():
			timer.Stop()
		case wait > 0:
			timer.Reset(wait)
		default:
			_ = db.Flush() // reported by Health and in the log
			timer.Reset(0)
		}
	}
}

// Flush writes all pending changes now and returns once they are synced. After
// an error they stay pending.
func (db *DB) Flush() error {
	if db.path == "" {
		return nil
	}
	db.disk.Lock()
	defer db.disk.Unlock()
	return db.flush()
}

// flush is Flush for a caller that holds disk.
func (db *DB) flush() error {
	db.mu.Lock()
	if db.closed {
		db.mu.Unlock()
		return errClosed
	}
	batch, notes := db.pending, slices.Clone(db.notes)
	db.pending, db.due = changes{}, time.Time{}
	retry := db.err != nil
	db.mu.Unlock()
	var err error
	for _, n := range notes { // first: nothing else tells what they say
		err = errors.Join(err, n.flush())
	}
	if len(batch) > 0 || retry {
		if unwritten := db.write(batch); unwritten != nil {
			err = unwritten // of what has befallen notes too, most likely
			db.forgetDeletes(batch)
			db.mu.Lock()
			db.pending = batch.overlaid(db.pending)
			db.mu.Unlock()
		}
	}
	if err != nil {
		db.failed(err)
		return err
	}
	db.mu.Lock()
	healed := db.err != nil
	db.err = nil
	db.mu.Unlock()
	if healed {
		db.log.Info("state is written again", "path", db.path)
	}
	return nil
}

// Close writes what is pending and closes the file. It is called once, after
// everything that uses a Bucket has ended.
func (db *DB) Close() error {
	err := db.Flush()
	db.mu.Lock()
	db.closed = true
	db.mu.Unlock()
	db.disk.Lock()
	defer db.disk.Unlock()
	if db.file != nil {
		err = errors.Join(err, db.file.close())
		db.file = nil
	}
	return err
}

// write brings one batch into the file, opening it first where there is none or
// where it could only be read, and starting a fresh one where it turns out to be
// damaged.
func (db *DB) write(batch changes) error {
	for attempt := 0; ; attempt++ {
		if db.file == nil || db.file.readOnly {
			if err := db.openFile(); err != nil {
				return err
			}
			if db.file.readOnly {
				return db.file.why
			}
		}
		err := db.file.update(batch.apply)
		if !errors.Is(err, errDamaged) || attempt > 0 {
			if err != nil {
				return fmt.Errorf("write %s: %w", db.path, cause(err))
			}
			return nil
		}
		db.abandon(err)
	}
}

// openFile opens the file, after setting aside one that cannot be used. It
// leaves a file that can only be read open for reading.
func (db *DB) openFile() error {
	if db.file != nil {
		_ = db.file.close() // open for reading only: nothing to lose
		db.file = nil
	}
	if err := os.MkdirAll(filepath.Dir(db.path), 0o700); err != nil {
		return err
	}
	for attempt := 0; ; attempt++ {
		f, err := openFile(db.path, db.schema)
		var unusable *unusableError
		if !errors.As(err, &unusable) || attempt > 0 {
			if unusable != nil {
				unusable.release()
			}
			db.file = f
			if f != nil && f.readOnly {
				return f.why
			}
			return err
		}
		db.moveAside(db.path, unusable.suffix, unusable)
		unusable.release()
	}
}

// abandon gives up the open file after a fault in it. bbolt's own locks may
// still be held, so that its Close could block: only the descriptor is closed.
func (db *DB) abandon(why error) {
	db.moveAside(db.path, suffixCorrupt, why)
	db.file.abandon()
	db.file = nil
}

// moveAside sets a file aside, the state file or one of notes.
func (db *DB) moveAside(path, suffix string, why error) {
	to, err := setAside(path, suffix, time.Now())
	if err != nil {
		db.log.Warn("state file cannot be used, nor moved out of the way", "path", path, "reason", why, "error", err)
		return
	}
	db.noteAside(to)
	db.log.Warn("state file cannot be used and was set aside, starting with an empty one", "path", path, "moved_to", to, "reason", why)
}

// noteAside has Health tell where a file was moved to.
func (db *DB) noteAside(to string) {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.setAside = to
}

// failed notes that the file cannot be written, and logs it when it begins.
func (db *DB) failed(err error) {
	db.mu.Lock()
	began := db.err == nil
	db.err = err
	db.schedule(time.Now().Add(retryDelay))
	db.mu.Unlock()
	if began {
		db.log.Warn("state is not persisted, going on from memory", "path", db.path, "error", err)
	}
}

// soon has what is pending written after delay at the latest, for a caller that holds mu.
func (db *DB) soon(delay time.Duration) {
	if due := time.Now().Add(delay); db.due.IsZero() || due.Before(db.due) && db.err == nil {
		db.schedule(due)
	}
}

// schedule sets when pending has to be written, for a caller that holds mu.
func (db *DB) schedule(due time.Time) {
	db.due = due
	select {
	case db.wake <- struct{}{}:
	default: // the token of an earlier change is still there
	}
}

// forgetDeletes drops deletions of what the file does not hold, so that a file
// that cannot be written for months costs no more memory than what is alive.
func (db *DB) forgetDeletes(batch changes) {
	for bucket, keys := range batch {
		for key, value := range keys {
			if value == nil && (db.file == nil || !db.file.has(bucket, key)) {
				delete(keys, key)
			}
		}
		if len(keys) == 0 {
			delete(batch, bucket)
		}
	}
}

// apply brings the changes into a transaction.
func (c changes) apply(tx *bbolt.Tx) error {
	for name, keys := range c {
		bucket, err := tx.CreateBucketIfNotExists([]byte(name))
		if err != nil {
			return err
		}
		for key, value := range keys {
			if value == nil {
				err = bucket.Delete([]byte(key))
			} else {
				err = bucket.Put([]byte(key), value)
			}
			if err != nil {
				return fmt.Errorf("key %q: %w", key, err)
			}
		}
	}
	return nil
}
