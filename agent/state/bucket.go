package state

import (
	"maps"
	"slices"
	"time"
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

// Load calls fn for each key in lexical order with its latest value, written or
// not, and ends with the first error that fn returns. The value is fn's to keep.
// A file that turns out to be damaged is set aside like in Open, and what is
// left in memory is loaded.
func (b *Bucket) Load(fn func(key string, value []byte) error) error {
	values, err := b.db.load(b.name)
	if err != nil {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if err := fn(key, values[key]); err != nil {
			return err
		}
	}
	return nil
}

// Apply stores puts and takes deletes away, all or nothing, in the file within
// seconds. The values are copied. A key is neither empty nor longer than 32 KiB.
// The error tells that the DB is closed; whether the file can be written is told
// by DB.Health.
func (b *Bucket) Apply(puts map[string][]byte, deletes []string) error {
	return b.db.apply(b.name, puts, deletes, flushDelay)
}

// ApplyLazily is Apply for changes that matter little, such as a heartbeat: they
// go with the next write, or reach the file within half a minute.
func (b *Bucket) ApplyLazily(puts map[string][]byte, deletes []string) error {
	return b.db.apply(b.name, puts, deletes, lazyFlushDelay)
}

func (db *DB) apply(bucket string, puts map[string][]byte, deletes []string, delay time.Duration) error {
	if len(puts) == 0 && len(deletes) == 0 {
		return nil
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.closed {
		return errClosed
	}
	for _, key := range deletes {
		db.pending.set(bucket, key, nil)
		if db.path == "" {
			delete(db.pending[bucket], key)
		}
	}
	for key, value := range puts {
		db.pending.set(bucket, key, append([]byte{}, value...))
	}
	if due := time.Now().Add(delay); db.due.IsZero() || due.Before(db.due) && db.err == nil {
		db.schedule(due)
	}
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
