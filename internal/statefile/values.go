package statefile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"sync"
)

// Values are few small values by key, which are kept in memory and in one file. All methods
// are safe for concurrent use and none waits for the disk.
type Values struct {
	file *File

	mu     sync.Mutex // guards what follows
	values map[string]json.RawMessage
}

// Values returns the values in the state file of that name, which is a constant of their
// owner.
func (f *Folder) Values(name string) *Values { return open(f.File(name)) }

// Notes returns the values in the file name.json. They are there also where state files are
// not, because these are damaged, or a newer hostler has written them: the file is text, one
// JSON object, whose shape has no version. Keys are only ever added, none changes its
// meaning, and those of a later hostler are kept as they stand.
func (f *Folder) Notes(name string) *Values {
	file := f.file(name + ".json")
	file.plain = true
	return open(file)
}

func open(file *File) *Values {
	v := &Values{file: file}
	file.Load(&v.values)
	if v.values == nil {
		v.values = map[string]json.RawMessage{}
	}
	for key, value := range v.values {
		if isNull(value) { // a person's way to remove one
			delete(v.values, key)
			continue
		}
		var compact bytes.Buffer
		_ = json.Compact(&compact, value) // it has been read as JSON
		v.values[key] = compact.Bytes()
	}
	return v
}

func isNull(value []byte) bool { return string(bytes.TrimSpace(value)) == "null" }

// Load returns all keys with their latest values, written or not, which are the caller's
// to keep. It never fails.
func (v *Values) Load() (map[string][]byte, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	values := map[string][]byte{}
	for key, value := range v.values {
		values[key] = bytes.Clone(value)
	}
	return values, nil
}

// Write puts and removes keys, all or none of them, and has them in the file within seconds,
// or with Folder.Flush. The values are JSON, other than null, and copied; removing a missing
// key succeeds. The error is about a value that is no JSON; whether the file can be written
// is in Folder.Health.
func (v *Values) Write(put map[string][]byte, remove []string) error {
	return v.change(put, remove, v.file.Save)
}

// WriteNow is Write for changes that are rare and that a power cut should not lose: they are
// written next. It does not wait for that either.
func (v *Values) WriteNow(put map[string][]byte, remove []string) error {
	return v.change(put, remove, v.file.SaveNow)
}

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
		if _, there := v.values[key]; there {
			delete(v.values, key)
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
