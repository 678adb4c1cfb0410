// Package journal keeps on disk how shutdowns went, pod by pod: for the next
// process of this boot, which goes on where a drain stood, and for the next
// boot, which tells people.
//
// It owns the record and its file. It decides nothing but what the file of an
// earlier boot proves, and refuses to hold anybody up.
package journal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// Journal keeps on disk how shutdowns went, so that an agent that was killed in
// the middle goes on where it stood, and the next boot knows. Changes are
// written by a goroutine of their own, the newest state at a time: a slow or
// full disk never stops a drain.
type Journal struct {
	path string
	log  *slog.Logger

	wake chan struct{} // capacity 1

	mu     sync.Mutex
	file   content       // guarded by mu; records in it are never changed
	dirty  bool          // guarded by mu: file is newer than the disk
	urgent bool          // guarded by mu: and should be written at once
	clean  chan struct{} // guarded by mu: closed when the disk has caught up, or refused to
}

const (
	version = 1
	// maxBytes is far above what a host's pods can fill.
	maxBytes = 16 << 20
	// markInterval is how often at most the list of running pods is written.
	markInterval = 10 * time.Second
	// retry is the pause after a failed write.
	retry = 5 * time.Second
)

// content is what stands on disk.
type content struct {
	Version int    `json:"version"`
	BootID  string `json:"bootID"` // the boot that wrote it
	// Watch is evidence for the next boot: what ran while the guard was on.
	Watch *watch `json:"watch,omitempty"`
	// Record is this boot's drain: running, released or cancelled.
	Record *Record `json:"record,omitempty"`
	// Last is the shutdown before that.
	Last *Record `json:"last,omitempty"`
}

// watch says that a guard was on and which pods ran then.
type watch struct {
	Pods []Ref `json:"pods"`
}

// Ref names a pod.
type Ref struct {
	Runtime   string `json:"runtime"`
	ID        string `json:"id"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// Open reads the journal at path. bootID names the present boot: the kernel's
// boot ID, and after an @ the service manager's start, where that is known. One
// that differs from the file's makes the file's story the last shutdown. A file
// that cannot be understood is set aside beside its path, with a warning;
// nothing that is wrong with it is fatal.
func Open(path, bootID string, log *slog.Logger) *Journal {
	j := &Journal{path: path, log: log.With("component", "shutdown-journal"), wake: make(chan struct{}, 1)}
	file, err := read(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		aside := path + ".corrupt"
		j.log.Warn("set the shutdown journal aside: how the last shutdown went is not known", "path", path, "aside", aside, "error", err)
		if err := os.Rename(path, aside); err != nil {
			j.log.Warn("the faulty shutdown journal stays where it is", "error", err)
		}
	}
	if err != nil {
		file = content{BootID: bootID}
	}
	switch {
	case !sameBoot(file.BootID, bootID):
		file = content{BootID: bootID, Last: file.verdict()}
	case len(bootID) > len(file.BootID):
		file.BootID = bootID
	}
	file.Version = version
	j.file = file
	return j
}

// Peek reads how the last shutdown went, as Last tells it, and changes nothing:
// for a person on a host whose agent does not run. A missing journal is
// fs.ErrNotExist.
func Peek(path, bootID string) (*Record, error) {
	file, err := read(path)
	if err != nil {
		return nil, err
	}
	if !sameBoot(file.BootID, bootID) {
		return file.verdict(), nil
	}
	return (&Journal{file: file}).Last(), nil
}

// sameBoot tells whether a and b may name one boot: a service manager that did
// not tell one of them its start proves nothing.
func sameBoot(a, b string) bool {
	kernelA, startA, knownA := strings.Cut(a, "@")
	kernelB, startB, knownB := strings.Cut(b, "@")
	return kernelA == kernelB && (startA == startB || !knownA || !knownB)
}

func read(path string) (content, error) {
	f, err := os.Open(path)
	if err != nil {
		return content{}, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxBytes+1))
	if err != nil {
		return content{}, err
	}
	return decode(data)
}

// decode is strict about what the guard relies on.
func decode(data []byte) (content, error) {
	if len(data) > maxBytes {
		return content{}, fmt.Errorf("decode shutdown journal: more than %d bytes", maxBytes)
	}
	var file content
	if err := json.Unmarshal(data, &file); err != nil {
		return content{}, fmt.Errorf("decode shutdown journal: %w", err)
	}
	if file.Version != version {
		return content{}, fmt.Errorf("decode shutdown journal: version %d, not %d", file.Version, version)
	}
	if file.BootID == "" {
		return content{}, errors.New("decode shutdown journal: no boot ID")
	}
	if file.Record != nil && file.Record.StartedAt.IsZero() {
		return content{}, errors.New("decode shutdown journal: a drain without a start")
	}
	return file, nil
}

// verdict is how the boot that wrote the file ended; nil where nothing is
// known, because the guard was off or stopped before.
func (f content) verdict() *Record {
	if r := f.Record; r != nil && r.CancelledAt.IsZero() {
		if !r.FinishedAt.IsZero() {
			return r
		}
		r = r.Clone()
		r.Graceful = false
		r.Error = "the host went down in the middle of the drain"
		for i := range r.Pods {
			if r.Pods[i].Outcome == "" {
				r.Pods[i].Outcome = Left
			}
		}
		return r
	}
	if f.Watch == nil {
		return nil
	}
	r := &Record{BootID: f.BootID, Trigger: TriggerUnknown, Graceful: true, Pods: []PodRecord{}}
	for _, p := range f.Watch.Pods {
		r.Graceful = false
		r.Error = "the host went down without a drain"
		r.Pods = append(r.Pods, PodRecord{Runtime: p.Runtime, ID: p.ID, Namespace: p.Namespace, Name: p.Name, Outcome: Left})
	}
	return r
}

// Last is the last shutdown, nil if nothing is known of one: this boot's, if it
// has finished one, or how the boot before ended.
func (j *Journal) Last() *Record {
	j.mu.Lock()
	defer j.mu.Unlock()
	if r := j.file.Record; r != nil && !r.FinishedAt.IsZero() && r.CancelledAt.IsZero() {
		return r
	}
	return j.file.Last
}

// BootID names the present boot.
func (j *Journal) BootID() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.file.BootID
}

// Current is this boot's drain, if there was one and it was not called off.
func (j *Journal) Current() *Record {
	j.mu.Lock()
	defer j.mu.Unlock()
	if r := j.file.Record; r != nil && r.CancelledAt.IsZero() {
		return r
	}
	return nil
}

// Put records how the drain stands. The record must not be changed afterwards.
func (j *Journal) Put(r *Record) {
	j.change(true, func(f *content) bool { f.Record = r; return true })
}

// Settle ends the story of this boot's drain, for the host lives on: what was
// finished becomes the last shutdown.
func (j *Journal) Settle() {
	j.change(true, func(f *content) bool {
		if f.Record == nil {
			return false
		}
		if f.Record.CancelledAt.IsZero() && !f.Record.FinishedAt.IsZero() {
			f.Last = f.Record
		}
		f.Record = nil
		return true
	})
}

// Mark notes which pods run while the guard is on.
func (j *Journal) Mark(pods []Ref) {
	j.change(false, func(f *content) bool {
		if f.Watch != nil && slices.Equal(f.Watch.Pods, pods) {
			return false
		}
		f.Watch = &watch{Pods: pods}
		return true
	})
}

// Unmark notes that nobody watches any more.
func (j *Journal) Unmark() {
	j.change(true, func(f *content) bool {
		changed := f.Watch != nil
		f.Watch = nil
		return changed
	})
}

func (j *Journal) change(urgent bool, apply func(*content) bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !apply(&j.file) {
		return
	}
	if !j.dirty {
		j.clean = make(chan struct{})
	}
	j.dirty = true
	j.urgent = j.urgent || urgent
	select {
	case j.wake <- struct{}{}:
	default:
	}
}

// Flush has what was put before written now, and waits for it until ctx ends or
// the disk refuses it: what fails is tried again without anybody waiting.
func (j *Journal) Flush(ctx context.Context) {
	j.mu.Lock()
	clean := j.clean
	if j.dirty {
		j.urgent = true
		select {
		case j.wake <- struct{}{}:
		default:
		}
	}
	j.mu.Unlock()
	if clean == nil {
		return
	}
	select {
	case <-clean:
	case <-ctx.Done():
	}
}

// Run writes what changes until ctx ends. It is the only writer.
func (j *Journal) Run(ctx context.Context) {
	pause := time.NewTimer(0)
	defer pause.Stop()
	var next time.Time // when what is not urgent may be written
	failing := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-j.wake:
		case <-pause.C:
		}
		j.mu.Lock()
		file, dirty, urgent := j.file, j.dirty, j.urgent
		j.urgent = false
		j.mu.Unlock()
		if !dirty {
			continue
		}
		if wait := time.Until(next); wait > 0 && !urgent {
			pause.Reset(wait)
			continue
		}
		err := write(j.path, file)
		switch {
		case err != nil && !failing:
			j.log.Warn("the shutdown journal is not written", "error", err)
		case err == nil && failing:
			j.log.Info("the shutdown journal is written again")
		}
		failing = err != nil
		if failing {
			next = time.Now().Add(retry)
			pause.Reset(retry)
			j.refused()
			continue
		}
		next = time.Now().Add(markInterval)
		j.written(file)
	}
}

// written notes that file is on disk, which may be older than what is known by
// now.
func (j *Journal) written(file content) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.file != file {
		select {
		case j.wake <- struct{}{}:
		default:
		}
		return
	}
	j.dirty = false
	close(j.clean)
	j.clean = nil
}

// refused lets those go on who wait for a write that has failed.
func (j *Journal) refused() {
	j.mu.Lock()
	defer j.mu.Unlock()
	close(j.clean)
	j.clean = make(chan struct{})
}

// write replaces the file so that a crash at any moment leaves the old
// or the new one, whole.
func write(path string, file content) error {
	data, err := json.Marshal(file)
	if err != nil {
		return fmt.Errorf("encode shutdown journal: %w", err)
	}
	folder := filepath.Dir(path)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return fmt.Errorf("write shutdown journal: %w", err)
	}
	temp, err := os.OpenFile(path+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("write shutdown journal: %w", err)
	}
	_, err = temp.Write(data)
	if err == nil {
		err = temp.Sync()
	}
	if err = errors.Join(err, temp.Close()); err == nil {
		err = os.Rename(temp.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("write shutdown journal: %w", errors.Join(err, os.Remove(temp.Name())))
	}
	// Without this the new name may not be there after a power cut.
	d, err := os.Open(folder)
	if err != nil {
		return fmt.Errorf("write shutdown journal: %w", err)
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("write shutdown journal: %w", err)
	}
	return nil
}
