package state

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"hostler.io/hostler/internal/atomicfile"
)

// maxNotesBytes is far above what a few small values can fill.
const maxNotesBytes = 1 << 20

// Notes are few small values that are to be there also where the state file is not: where
// that is damaged, or set aside because a newer hostler has written it. They are kept as
// text in a file of their own beside it, one JSON object, whose shape has no version: keys
// are only ever added, none changes its meaning, and those of a later hostler are kept as
// they stand. All methods are safe for concurrent use and none waits for the disk,
// Inherit excepted.
type Notes struct {
	db   *DB
	path string // empty: memory only, by choice

	unread error // why a file that may be whole could not be read; guarded by db.disk

	values map[string]json.RawMessage // guarded by db.mu
	dirty  bool                       // values are newer than the file; guarded by db.mu
	found  bool                       // there was a file that could be read
}

// Notes reads the notes of that name, which is a constant of their owner, from the file
// name.json beside the state file. A file that makes no sense is set aside with a warning,
// like the state file; one that cannot be read is before it is written over. It is called
// once for each name.
func (db *DB) Notes(name string) *Notes {
	n := &Notes{db: db, values: map[string]json.RawMessage{}}
	if db.path != "" {
		n.path = filepath.Join(filepath.Dir(db.path), name+".json")
		db.disk.Lock()
		n.read()
		db.disk.Unlock()
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	db.notes = append(db.notes, n)
	return n
}

// Load returns all keys with their latest values, written or not, which are the caller's
// to keep. It never fails.
func (n *Notes) Load() (map[string][]byte, error) {
	n.db.mu.Lock()
	defer n.db.mu.Unlock()
	values := map[string][]byte{}
	for key, value := range n.values {
		values[key] = bytes.Clone(value)
	}
	return values, nil
}

// Write puts and removes keys, all or none of them, and has them in the file within
// seconds, or with DB.Flush. The values are JSON, other than null, and copied; removing a
// missing key succeeds. The error tells of a value that is no JSON, or that the DB is
// closed; whether the file can be written is told by DB.Health.
func (n *Notes) Write(put map[string][]byte, remove []string) error {
	for key, value := range put {
		if !json.Valid(value) || isNull(value) {
			return fmt.Errorf("note %s: the value is no JSON, or null", key)
		}
	}
	n.db.mu.Lock()
	defer n.db.mu.Unlock()
	if n.db.closed {
		return errClosed
	}
	for _, key := range remove {
		if _, there := n.values[key]; there {
			delete(n.values, key)
			n.dirty = true
		}
	}
	for key, value := range put {
		if !bytes.Equal(n.values[key], value) {
			n.values[key] = bytes.Clone(value)
			n.dirty = true
		}
	}
	if n.dirty && n.path != "" {
		n.db.soon(flushDelay)
	}
	return nil
}

// Inherit takes over, once, what earlier versions have kept under keys in a bucket. From
// when the notes have a file, that one is right; so values stay in the bucket until a later
// start has found it, and no power cut loses both.
func (n *Notes) Inherit(from *Bucket, keys ...string) error {
	before, err := from.Load()
	if err != nil {
		return err
	}
	put, remove := map[string][]byte{}, []string{}
	for _, key := range keys {
		value, there := before[key]
		switch {
		case !there:
		case n.found:
			remove = append(remove, key)
		default:
			put[key] = value
		}
	}
	return errors.Join(n.Write(put, nil), from.Write(nil, remove))
}

// read takes up the file, for a caller that holds db.disk.
func (n *Notes) read() {
	values, err := readNotes(n.path)
	switch {
	case err == nil:
		n.values, n.found = values, true
	case errors.Is(err, fs.ErrNotExist):
	case errors.Is(err, errDamaged):
		n.db.moveAside(n.path, suffixCorrupt, err)
	default:
		n.unread = err
		n.db.log.Warn("what was noted before cannot be read", "path", n.path, "error", err)
	}
}

func readNotes(path string) (map[string]json.RawMessage, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%w: not a regular file", errDamaged)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxNotesBytes+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxNotesBytes {
		return nil, fmt.Errorf("%w: more than %d bytes", errDamaged, maxNotesBytes)
	}
	var values map[string]json.RawMessage
	if err := json.Unmarshal(text, &values); err != nil {
		return nil, fmt.Errorf("%w: %w", errDamaged, err)
	}
	if values == nil {
		return nil, fmt.Errorf("%w: no object", errDamaged)
	}
	for key, value := range values {
		if isNull(value) { // a person's way to take one out
			delete(values, key)
			continue
		}
		var compact bytes.Buffer
		if err := json.Compact(&compact, value); err != nil {
			return nil, fmt.Errorf("%w: %w", errDamaged, err)
		}
		values[key] = compact.Bytes()
	}
	return values, nil
}

func isNull(value []byte) bool { return string(bytes.TrimSpace(value)) == "null" }

// flush writes the file where values are newer, for a caller that holds db.disk. After an
// error they stay so.
func (n *Notes) flush() error {
	if n.path == "" {
		return nil
	}
	n.db.mu.Lock()
	dirty := n.dirty
	text, err := json.MarshalIndent(n.values, "", "  ")
	n.dirty = false
	n.db.mu.Unlock()
	if !dirty {
		return nil
	}
	if err == nil {
		err = n.makeWay()
	}
	if err == nil {
		err = atomicfile.Replace(n.path, append(text, '\n'))
	}
	if err != nil {
		n.db.mu.Lock()
		n.dirty = true
		n.db.mu.Unlock()
		return fmt.Errorf("write %s: %w", n.path, cause(err))
	}
	return nil
}

// makeWay sets a file aside that could not be read, for a caller that holds db.disk: a
// person may have more luck with it.
func (n *Notes) makeWay() error {
	if n.unread == nil {
		return nil
	}
	to, err := setAside(n.path, suffixUnreadable, time.Now())
	switch {
	case err == nil:
		n.db.noteAside(to)
		n.db.log.Warn("notes that cannot be read were set aside", "path", n.path, "moved_to", to, "reason", n.unread)
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	n.unread = nil
	return nil
}
