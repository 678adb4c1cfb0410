package statefile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"sync"
)

// Values are a few small values by key, kept in memory and in one file. All methods are safe for
// concurrent use, and do not wait for the disk.
type Values struct {
	file   *File
	unread bool // see Unread

	mu      sync.Mutex // guards the fields below
	values  map[string]json.RawMessage
	removed map[string]bool // keys that were removed while they could not be read
}

// Values returns the values in the state file of that name, which is a constant of their owner.
func (f *Folder) Values(name string) *Values { return open(f.File(name)) }

// Notes returns the values in the file name.json. They are readable even if state files are damaged
// or from a newer hostler, because the file is one plain JSON object without a version. In later
// versions, keys may be added, but never change their meaning. Keys of a later hostler are kept
// unchanged.
func (f *Folder) Notes(name string) *Values {
	file := f.file(name + ".json")
	file.plain = true
	return open(file)
}

func open(file *File) *Values {
	v := &Values{file: file, values: map[string]json.RawMessage{}, removed: map[string]bool{}}
	var stored map[string]json.RawMessage
	file.Load(&stored)
	v.add(stored)
	v.unread, file.add = file.Unread(), v.add
	return v
}

// add adds stored values of keys that were not changed since.
func (v *Values) add(stored map[string]json.RawMessage) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for key, value := range stored {
		if _, newer := v.values[key]; newer || v.removed[key] || isNull(value) { // a person can set null to remove a value
			continue
		}
		var compact bytes.Buffer
		_ = json.Compact(&compact, value) // cannot fail: it was parsed as JSON
		v.values[key] = compact.Bytes()
	}
}

func isNull(value []byte) bool { return string(bytes.TrimSpace(value)) == "null" }

// Load returns copies of all values, including those that are not on disk yet. It never fails.
func (v *Values) Load() (map[string][]byte, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	values := map[string][]byte{}
	for key, value := range v.values {
		values[key] = bytes.Clone(value)
	}
	return values, nil
}

// Write puts and removes keys atomically. The file has them within seconds, or after Folder.Flush.
// Values are JSON other than null, and are copied. Removing a missing key succeeds. The error is
// about a value that is not JSON; Folder.Health says whether the file can be written.
func (v *Values) Write(put map[string][]byte, remove []string) error {
	return v.change(put, remove, v.file.Save)
}

// WriteNow is Write for rare changes that a power cut should not lose. They are written
// immediately, but WriteNow does not wait for the disk either.
func (v *Values) WriteNow(put map[string][]byte, remove []string) error {
	return v.change(put, remove, v.file.SaveNow)
}

// Unread reports whether the file may be intact, but could not be read. The values are read only once, so this stays
// true until the process is restarted. The first write keeps the stored values of other keys. Until it can read them,
// it fails.
func (v *Values) Unread() bool { return v.unread }

// Flush is File.Flush for the file with the values.
func (v *Values) Flush() error { return v.file.Flush() }

func (v *Values) change(put map[string][]byte, remove []string, save func(func() any)) error {
	for key, value := range put {
		if !json.Valid(value) || isNull(value) {
			return fmt.Errorf("persist %s: the value is null or not JSON", key)
		}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	changed := false
	for _, key := range remove {
		if _, there := v.values[key]; there || v.unread && !v.removed[key] {
			delete(v.values, key)
			v.removed[key] = true
			changed = true
		}
	}
	for key, value := range put {
		if !bytes.Equal(v.values[key], value) {
			v.values[key] = bytes.Clone(value)
			changed = true
		}
	}
	if changed {
		save(v.snapshot)
	}
	return nil
}

func (v *Values) snapshot() any {
	v.mu.Lock()
	defer v.mu.Unlock()
	return maps.Clone(v.values)
}
