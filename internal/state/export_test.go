package state

import (
	"io"
	"log/slog"

	"go.etcd.io/bbolt"
)

// Timings and limits that tests hold the package to.
const (
	FlushDelay     = flushDelay
	LazyFlushDelay = lazyFlushDelay
	RetryDelay     = retryDelay
	KeptAside      = keptAside
)

// OpenVersion opens as a hostler of another schema version would.
func OpenVersion(path string, major int, migrations []func(*bbolt.Tx) error, log *slog.Logger) (*DB, error) {
	return openSchema(path, schema{major: major, migrations: migrations}, log)
}

// Verify is the check that a file passes before bbolt maps it.
func Verify(r io.ReaderAt, sizeBytes int64) error { return verify(r, sizeBytes) }

// PendingKeys counts the changes that have not reached the file.
func (db *DB) PendingKeys() int {
	db.mu.Lock()
	defer db.mu.Unlock()
	n := 0
	for _, keys := range db.pending {
		n += len(keys)
	}
	return n
}
