package state

import (
	"fmt"
	"time"

	"go.etcd.io/bbolt"
)

// changes are writes on their way to the file, by bucket and key. A nil value
// deletes the key.
type changes map[string]map[string][]byte

// set notes one write, in place of an earlier one to the same key.
func (c changes) set(bucket, key string, value []byte) {
	keys := c[bucket]
	if keys == nil {
		keys = map[string][]byte{}
		c[bucket] = keys
	}
	keys[key] = value
}

// overlaid returns c with the newer changes on top of it.
func (c changes) overlaid(newer changes) changes {
	for bucket, keys := range newer {
		for key, value := range keys {
			c.set(bucket, key, value)
		}
	}
	return c
}

// Bucket is the store of one owner: small values by key. All methods are safe
// for concurrent use and none waits for the disk, Load excepted.
type Bucket struct {
	db   *DB
	name string
}

// Bucket returns the store of that name, which is a constant of its owner and
// does not start with an underscore. It is made with the first write.
func (db *DB) Bucket(name string) *Bucket { return &Bucket{db: db, name: name} }

// Load returns all keys with their latest values, written or not, which are the
// caller's to keep. A file that turns out to be damaged is set aside like in
// Open, and what is left in memory is returned.
func (b *Bucket) Load() (map[string][]byte, error) {
	return b.db.load(b.name)
}

// Write puts and removes keys, all or none of them, and has them in the file
// within seconds. The values are copied. A key is neither empty nor longer than
// 32 KiB; removing a missing one succeeds. The error tells of such a key, or that
// the DB is closed; whether the file can be written is told by DB.Health.
func (b *Bucket) Write(put map[string][]byte, remove []string) error {
	return b.db.change(b.name, put, remove, flushDelay)
}

// WriteLazily is Write for changes that matter little, such as a heartbeat: they
// go with the next write, or reach the file within half a minute.
func (b *Bucket) WriteLazily(put map[string][]byte, remove []string) error {
	return b.db.change(b.name, put, remove, lazyFlushDelay)
}

// WriteNow is Write for changes that are rare and that a power cut should not take: they are
// written next, with all that waits. It does not wait for that either.
func (b *Bucket) WriteNow(put map[string][]byte, remove []string) error {
	return b.db.change(b.name, put, remove, 0)
}

func (db *DB) change(bucket string, put map[string][]byte, remove []string, delay time.Duration) error {
	if len(put) == 0 && len(remove) == 0 {
		return nil
	}
	for key := range put { // one that bbolt refuses would hold up all others
		if key == "" || len(key) > bbolt.MaxKeySize {
			return fmt.Errorf("store in %s: key of %d bytes, not 1 to %d", bucket, len(key), bbolt.MaxKeySize)
		}
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.closed {
		return errClosed
	}
	for _, key := range remove {
		db.pending.set(bucket, key, nil)
		if db.path == "" {
			delete(db.pending[bucket], key)
		}
	}
	for key, value := range put {
		db.pending.set(bucket, key, append([]byte{}, value...))
	}
	if db.path == "" {
		return nil // nothing will ever be written
	}
	db.soon(delay)
	return nil
}

// load returns a copy of a bucket, pending changes included.
func (db *DB) load(bucket string) (map[string][]byte, error) {
	db.disk.Lock()
	defer db.disk.Unlock()
	db.mu.Lock()
	closed := db.closed
	db.mu.Unlock()
	if closed {
		return nil, errClosed
	}
	values := map[string][]byte{}
	if db.file != nil {
		read, err := db.file.read(bucket)
		if err != nil {
			db.abandon(err)
		} else {
			values = read
		}
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	for key, value := range db.pending[bucket] {
		if value == nil {
			delete(values, key)
			continue
		}
		values[key] = append([]byte{}, value...)
	}
	return values, nil
}
