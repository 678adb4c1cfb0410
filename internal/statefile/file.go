package statefile

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"time"

	"hostler.io/hostler/internal/atomicfile"
)

const (
	// version is the version of the format and of all values. This hostler could misread a newer
	// one.
	version = 1

	// maxBytes bounds a file. Owners limit their state to a few MiB.
	maxBytes = 64 << 20
	// maxNotesBytes is far above the size of a few small values.
	maxNotesBytes = 1 << 20

	// keptAside is how many damaged files are kept beside each state file.
	keptAside = 3
)

// header is the first line of a file.
type header struct {
	Version int    `json:"version"`
	SHA256  string `json:"sha256"` // of everything after this line
}

// unusableError says why a file must be renamed.
type unusableError struct {
	suffix string // added to its new name
	why    string
}

func (e *unusableError) Error() string { return e.why }

func damaged(format string, args ...any) error {
	return &unusableError{"corrupt", "damaged: " + fmt.Sprintf(format, args...)}
}

// File stores one kind of state. Its owner has the only copy in memory. All methods are safe for
// concurrent use.
type File struct {
	folder *Folder
	name   string
	plain  bool  // readable text, without a header
	unread error // why a file that may be intact could not be read; written with folder.disk and folder.mu
	// add adds stored values that the owner does not have, because they could not be read before; nil if it
	// does not apply. It is called with folder.disk.
	add func(stored map[string]json.RawMessage)

	snapshot func() any // returns the latest value; guarded by folder.mu
	due      time.Time  // when it must be written; zero if nothing is pending; guarded by folder.mu
}

// Load decodes the last saved value into the variable that into points to. If nothing was saved,
// the variable is unchanged. If the file cannot be used, the variable is unchanged, too, and the
// file is renamed with a warning. If the file cannot be read, Load tries again until readTimeout after Open.
func (f *File) Load(into any) {
	f.folder.disk.Lock()
	defer f.folder.disk.Unlock()
	f.folder.mu.Lock()
	var pending func() any
	if !f.due.IsZero() {
		pending = f.snapshot
	}
	f.folder.mu.Unlock()
	f.load(into, pending)
}

// load is Load for a caller that holds disk. pending is the state to load instead of the stored one, or nil.
func (f *File) load(into any, pending func() any) {
	var value []byte
	var err error
	switch {
	case pending != nil:
		value, err = json.Marshal(pending())
	case f.folder.path != "":
		value, err = f.read()
		for unreadable(err) && time.Now().Before(f.folder.patience) {
			time.Sleep(lockRetry)
			value, err = f.read()
		}
	default:
		return
	}
	if err == nil {
		fresh := reflect.New(reflect.TypeOf(into).Elem()) // decoding may fail after it has set some fields
		if err = json.Unmarshal(value, fresh.Interface()); err == nil {
			reflect.ValueOf(into).Elem().Set(fresh.Elem())
			f.setUnread(nil)
			return
		}
		err = damaged("%v", err)
	}
	var unusable *unusableError
	first := f.unread == nil
	switch {
	case errors.As(err, &unusable):
		if err := f.moveAside(unusable.suffix, unusable); err != nil {
			f.folder.log.Warn("cannot use state file, nor move it aside", "path", f.path(), "reason", unusable, "error", err)
		} else {
			f.setUnread(nil)
		}
	case errors.Is(err, fs.ErrNotExist):
		f.setUnread(nil)
	case first:
		f.folder.log.Warn("cannot read state file, its content is unknown", "path", f.path(), "error", err)
		f.setUnread(err)
	}
}

// unreadable reports whether the error is of a file that may be intact.
func unreadable(err error) bool {
	var unusable *unusableError
	return err != nil && !errors.As(err, &unusable) && !errors.Is(err, fs.ErrNotExist)
}

// setUnread records why the file could not be read. The caller holds disk.
func (f *File) setUnread(err error) {
	f.folder.mu.Lock()
	defer f.folder.mu.Unlock()
	f.unread = err
}

// Unread reports whether the file may be intact, but could not be read, so that Load may return its value later. It
// does not wait for the disk. If the first write cannot read it either, the file is renamed, except Notes.
func (f *File) Unread() bool {
	f.folder.mu.Lock()
	defer f.folder.mu.Unlock()
	return f.unread != nil
}

// Save writes the state within seconds. Another goroutine calls snapshot later, and encodes its
// result with encoding/json, so the result must not change any more. Save does not wait for the
// disk.
func (f *File) Save(snapshot func() any) { f.save(snapshot, saveDelay) }

// SaveLazily is Save for unimportant changes, such as a heartbeat. They are written within half a
// minute.
func (f *File) SaveLazily(snapshot func() any) { f.save(snapshot, lazyDelay) }

// SaveNow is Save for rare changes that a power cut should not lose. They are written immediately,
// but SaveNow does not wait for the disk either.
func (f *File) SaveNow(snapshot func() any) { f.save(snapshot, 0) }

// Flush is Folder.Flush, but returns only an error about this file.
func (f *File) Flush() error { return f.folder.write(true, f) }

func (f *File) save(snapshot func() any, delay time.Duration) {
	f.folder.mu.Lock()
	defer f.folder.mu.Unlock()
	f.snapshot = snapshot
	if due := time.Now().Add(delay); f.due.IsZero() || due.Before(f.due) {
		f.due = due
		f.folder.trigger()
	}
}

// markPending marks the state as pending after a failed write.
func (f *File) markPending() {
	f.folder.mu.Lock()
	defer f.folder.mu.Unlock()
	f.due = time.Now()
}

func (f *File) path() string { return filepath.Join(f.folder.path, f.name) }

// read returns the stored value as JSON. The caller holds disk.
func (f *File) read() ([]byte, error) {
	file, err := os.OpenFile(f.path(), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, damaged("not a regular file")
	}
	if info.Mode().Perm()&0o077 != 0 {
		_ = file.Chmod(0o600) // best effort: other users cannot open the folder anyway
	}
	limit := maxBytes
	if f.plain {
		limit = maxNotesBytes
	}
	text, err := io.ReadAll(io.LimitReader(file, int64(limit)+1))
	switch {
	case err != nil:
		return nil, err
	case len(text) > limit:
		return nil, damaged("more than %d bytes", limit)
	case f.plain && isNull(text):
		return nil, damaged("not a JSON object")
	case f.plain:
		return text, nil
	}
	return valueOf(text)
}

// valueOf returns the value after the header, if the header's version and checksum match.
func valueOf(text []byte) ([]byte, error) {
	line, value, found := bytes.Cut(text, []byte("\n"))
	var h header
	if err := json.Unmarshal(line, &h); err != nil || !found || h.Version < 1 {
		return nil, damaged("invalid first line of a state file")
	}
	if h.Version > version {
		return nil, &unusableError{
			suffix: fmt.Sprintf("v%d", h.Version),
			why:    fmt.Sprintf("written by a newer hostler: version %d, newest supported version %d", h.Version, version),
		}
	}
	if sum := checksum(value); sum != h.SHA256 {
		return nil, damaged("its checksum is %s, not %q", sum, h.SHA256)
	}
	return value, nil
}

func checksum(value []byte) string { return fmt.Sprintf("%x", sha256.Sum256(value)) }

// write replaces the file with the owner's current state. The caller holds disk.
func (f *File) write() error {
	f.folder.mu.Lock()
	snapshot := f.snapshot
	f.folder.mu.Unlock()
	err := f.clearPath()
	if err == nil {
		err = f.replace(snapshot())
	}
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) { // the error would repeat the path
		err = pathErr.Err
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", f.path(), err)
	}
	return nil
}

func (f *File) replace(value any) error {
	if f.plain {
		text, err := json.MarshalIndent(value, "", "  ")
		if err != nil {
			return err
		}
		return atomicfile.Replace(f.path(), text, []byte("\n"))
	}
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	text = append(text, '\n')
	first, err := json.Marshal(header{Version: version, SHA256: checksum(text)})
	if err != nil {
		return err
	}
	if len(first)+len("\n")+len(text) > maxBytes {
		return fmt.Errorf("more than %d bytes", maxBytes)
	}
	return atomicfile.Replace(f.path(), first, []byte("\n"), text)
}

// clearPath reads values again that could not be read, and adds them to those of the owner. A file that
// still cannot be read is renamed, so that a person can try to read it. It returns an error if the file
// has decisions of people, which must not be forgotten. The caller holds disk.
func (f *File) clearPath() error {
	if f.unread != nil && f.add != nil {
		var stored map[string]json.RawMessage
		f.load(&stored, nil)
		f.add(stored)
	}
	switch {
	case f.unread == nil:
		return nil
	case f.plain:
		return fmt.Errorf("it may be intact, but cannot be read: %v", f.unread)
	}
	if err := f.moveAside("unreadable", f.unread); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f.setUnread(nil)
	return nil
}

// moveAside renames the file to name.suffix-time, and deletes all but the latest few renamed files.
// The caller holds disk.
func (f *File) moveAside(suffix string, why error) error {
	to := f.path() + "." + suffix + "-" + time.Now().UTC().Format("20060102T150405.000000000Z")
	if err := os.Rename(f.path(), to); err != nil {
		return err
	}
	f.folder.mu.Lock()
	f.folder.setAside = to
	f.folder.mu.Unlock()
	f.folder.log.Warn("moved unusable state file aside, starting with an empty one", "path", f.path(), "moved_to", to, "reason", why)
	old, err := filepath.Glob(f.path() + ".*-[0-9]*T[0-9]*Z")
	if err != nil {
		return nil // the path contains glob characters: delete nothing
	}
	old = slices.DeleteFunc(old, func(name string) bool { return name == to }) // the newest one, even if the clock was set back
	slices.SortFunc(old, func(a, b string) int { return strings.Compare(asideTime(a), asideTime(b)) })
	for _, name := range old[:max(0, len(old)+1-keptAside)] {
		_ = os.Remove(name) // tried again after the next rename
	}
	return atomicfile.SyncFolder(f.folder.path)
}

// asideTime returns the time in a name, so that names can be sorted by age.
func asideTime(path string) string { return path[strings.LastIndexByte(path, '-'):] }
