// Package journal persists the results of shutdowns, pod by pod. The next process of this boot uses
// it to continue an interrupted drain. The next boot reports it.
//
// It owns the record and its file. From the file of an earlier boot it concludes only what the file
// proves. Writes never delay a shutdown.
package journal

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"
)

// Journal persists the results of shutdowns. After a crash, the next agent continues the drain from
// it; the next boot reports it. A separate goroutine writes only the newest state, so that a slow
// or full disk does not delay a drain.
type Journal struct {
	path string
	log  *slog.Logger

	wake chan struct{} // capacity 1

	mu     sync.Mutex
	file   content       // guarded by mu; its records are never modified
	dirty  bool          // guarded by mu: file is newer than the disk
	urgent bool          // guarded by mu: write it at once
	clean  chan struct{} // guarded by mu: closed when the latest state is on disk, or when a write has failed
	failed error         // guarded by mu: error of the last write; nil if it has succeeded

	unread  bool // guarded by mu: the file may be valid, but could not be read yet
	first   bool // guarded by mu: the file was of another boot when this process read it
	settled bool // guarded by mu: Settle was called, so a drain in an unread file is over
}

const (
	// markInterval is the minimum interval between writes of the list of running pods.
	markInterval = 2 * time.Second
	// retry is the pause after a failed write, or a failed read of the file.
	retry = 5 * time.Second
	// readBound is how long a file that cannot be read is waited for.
	readBound = time.Minute
)

// Open reads the journal at path. bootID is the kernel's boot ID, with @ and systemd's start time
// if known. If the file has another boot ID, its drain becomes the last shutdown. An invalid file
// is renamed, with a warning. If the file cannot be read, Run reads it again, before it
// overwrites it. No fault is fatal.
func Open(path, bootID string, log *slog.Logger) *Journal {
	j := &Journal{path: path, log: log.With("component", "shutdown-journal"), wake: make(chan struct{}, 1)}
	file, err := read(path)
	switch {
	case err == nil:
	case errors.Is(err, fs.ErrNotExist):
	case errors.Is(err, errFaulty):
		if aside := j.setAside(corrupt, err); aside != nil {
			j.log.Warn("cannot move corrupt shutdown journal aside", "error", errors.Join(err, aside))
		}
	default:
		j.unread = true
		j.log.Warn("cannot read shutdown journal yet, result of the last shutdown unknown", "path", path, "error", err)
	}
	if err != nil {
		file = content{BootID: bootID}
	}
	j.first = !SameBoot(file.BootID, bootID)
	j.file = file.continuedBy(bootID)
	return j
}

// Suffixes of a file that is set aside.
const (
	corrupt    = ".corrupt"
	unreadable = ".unreadable"
)

// setAside renames the file, so that it is not overwritten.
func (j *Journal) setAside(fault string, reason error) error {
	aside := j.path + fault
	if err := os.Rename(j.path, aside); err != nil {
		return fmt.Errorf("move corrupt shutdown journal aside: %w", err)
	}
	j.log.Warn("moved corrupt shutdown journal aside, result of the last shutdown unknown", "path", j.path, "aside", aside, "error", reason)
	return nil
}

// reread reads the file again that Open could not read. If that fails and the file is to be overwritten, or nobody
// waits for it any more, it renames the file, so that a user can examine it. Only Run calls it.
func (j *Journal) reread(last bool) error {
	j.mu.Lock()
	unread := j.unread
	j.mu.Unlock()
	if !unread {
		return nil
	}
	file, err := read(j.path)
	var aside error
	switch {
	case err == nil, errors.Is(err, fs.ErrNotExist):
	case errors.Is(err, errFaulty):
		aside = j.setAside(corrupt, err)
	case last:
		aside = j.setAside(unreadable, err)
	default:
		return err
	}
	if aside != nil {
		return aside
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.unread = false
	if err != nil {
		return nil
	}
	j.log.Info("shutdown journal readable again", "path", j.path)
	j.first = !SameBoot(file.BootID, j.file.BootID)
	file = file.continuedBy(j.file.BootID)
	if j.settled {
		file.settle()
	}
	// The records of this process are newer.
	j.file.BootID, j.file.Since = file.BootID, file.Since
	if j.file.Record == nil {
		j.file.Record = file.Record
	}
	if j.file.Last == nil {
		j.file.Last = file.Last
	}
	if j.file.Restarts == nil {
		j.file.Restarts = file.Restarts
	}
	if j.file.Cancelled == nil {
		j.file.Cancelled = file.Cancelled
	}
	if own := j.file.Drained; own == nil {
		j.file.Drained = file.Drained
		j.file.Uncordoned = j.file.Uncordoned || file.Uncordoned
	} else if len(own.Earlier) == 0 {
		j.file.Drained = own.withEarlier(file.earlier(own))
	}
	if file.Held != nil {
		for _, h := range *file.Held { // the drains of this process are others
			if j.file.held(h.Drain) == nil {
				j.file.hold(h)
			}
		}
	}
	if j.file.Services == nil {
		j.file.Services = file.Services
	}
	return nil
}

// Last returns the last shutdown: this boot's finished one, or how the previous boot ended; nil if
// unknown.
func (j *Journal) Last() *Record {
	j.mu.Lock()
	defer j.mu.Unlock()
	if r := j.file.Record; r != nil && !r.FinishedAt.IsZero() && r.CancelledAt.IsZero() {
		return r
	}
	return j.file.Last
}

// LastBoot returns how the previous boot ended; nil if unknown.
func (j *Journal) LastBoot() *Record {
	j.mu.Lock()
	defer j.mu.Unlock()
	if r := j.file.Last; r != nil && !SameBoot(r.BootID, j.file.BootID) {
		return r
	}
	return nil
}

// ErrUnread is why it is not known what a shutdown or drain has stopped, while Found does not report that the file was
// read.
var ErrUnread = errors.New("the record of shutdowns and drains cannot be read yet")

// Found reports whether the file was of another boot when this process read it, so that this is the
// boot's first process. read reports whether the file could be read. An unreadable file may become
// readable later.
func (j *Journal) Found() (another, read bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.first, !j.unread
}

// keep is how long the pods of a shutdown are kept, so that users can inspect them.
const keep = 24 * time.Hour

// Kept returns the drains whose pods should not be collected: this boot's drain, even if it is
// running or cancelled, and the last shutdown. Each is kept for a day from its end, or from the
// boot after it if that is later. The wall clock may have been changed in either direction since.
// So times more than a day in the future do not count, and uptime, which is independent of that
// clock, counts, too.
func (j *Journal) Kept(now time.Time, uptime time.Duration) []*Record {
	j.mu.Lock()
	defer j.mu.Unlock()
	recent := func(t time.Time) bool { return now.Sub(t).Abs() < keep }
	var kept []*Record
	if r := j.file.Record; r != nil {
		runs := r.FinishedAt.IsZero() && r.CancelledAt.IsZero()
		if runs || recent(r.FinishedAt) || recent(r.CancelledAt) {
			kept = append(kept, r)
		}
	}
	if r := j.file.Cancelled; r != nil && recent(r.CancelledAt) {
		kept = append(kept, r)
	}
	if r := j.file.Last; r != nil {
		later := !SameBoot(r.BootID, j.file.BootID)
		if recent(r.FinishedAt) || later && (recent(j.file.Since) || uptime < keep) {
			kept = append(kept, r)
		}
	}
	return kept
}

// BootID returns the ID of this boot.
func (j *Journal) BootID() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.file.BootID
}

// Current returns this boot's drain, unless it was cancelled; nil if there is none.
func (j *Journal) Current() *Record {
	j.mu.Lock()
	defer j.mu.Unlock()
	if r := j.file.Record; r != nil && r.CancelledAt.IsZero() {
		return r
	}
	return nil
}

// Put stores the state of the drain. The record must not be modified afterwards.
func (j *Journal) Put(r *Record) {
	j.change(true, func(f *content) bool { f.Record = r; return true })
}

// PutDrained stores the state of a drain after which the host keeps running. A drain that stopped
// nothing does not replace an earlier record. It keeps and returns the pods that earlier drains of
// the same maintenance period stopped. The record must not be modified afterwards.
func (j *Journal) PutDrained(r *Record) (earlier []PodRecord) {
	j.change(true, func(f *content) bool {
		earlier = f.earlier(r)
		if !slices.ContainsFunc(r.Pods, func(p PodRecord) bool { return !p.StartedAt.IsZero() }) {
			return false
		}
		undone := time.Time{}
		if f.Drained == nil || !f.Drained.StartedAt.Equal(r.StartedAt) {
			f.Uncordoned = false
		} else {
			undone = f.Drained.UndoneAt
		}
		f.Drained = r.withEarlier(earlier)
		f.Drained.UndoneAt = undone
		if r.Trigger.ByHost() {
			f.holdAlso(r, r.stopped(), nil)
		}
		if !undone.IsZero() { // a runtime has answered only after the drain was undone
			f.release(r.StartedAt)
		}
		return true
	})
	return earlier
}

// Settle ends the record of this boot's drain, because the host does not shut down. A finished
// drain becomes the last shutdown. It returns whether there was one.
func (j *Journal) Settle() (changed bool) {
	return j.change(true, func(f *content) bool {
		j.settled = true
		return f.settle()
	})
}

// Mark stores which pods run while the guard is on.
func (j *Journal) Mark(pods []Ref) {
	j.change(false, func(f *content) bool {
		if f.Watch != nil && slices.Equal(f.Watch.Pods, pods) {
			return false
		}
		f.Watch = &watch{At: time.Now().UTC(), Pods: pods}
		return true
	})
}

// Unmark records that the guard is off.
func (j *Journal) Unmark() {
	j.change(true, func(f *content) bool {
		changed := f.Watch != nil
		f.Watch = nil
		return changed
	})
}

func (j *Journal) change(urgent bool, apply func(*content) bool) (changed bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !apply(&j.file) {
		return false
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
	return true
}

// Flush is Sync for a shutdown, which goes on whatever the result.
func (j *Journal) Flush(ctx context.Context) { _ = j.Sync(ctx) }

// Sync writes the state now. It returns nil once the state is on disk. Otherwise it returns why a
// write has failed, or why ctx ended. A failed write is repeated later.
func (j *Journal) Sync(ctx context.Context) error {
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
		return nil
	}
	select {
	case <-clean:
	case <-ctx.Done():
		return fmt.Errorf("write %s: %w", j.path, context.Cause(ctx))
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.failed
}

// Run writes changes until ctx ends. It is the only writer.
func (j *Journal) Run(ctx context.Context) {
	pause := time.NewTimer(0)
	defer pause.Stop()
	var next time.Time // when the next change that is not urgent may be written
	patience := time.Now().Add(readBound)
	failing := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-j.wake:
		case <-pause.C:
		}
		j.mu.Lock()
		dirty, urgent := j.dirty, j.urgent
		j.urgent = false
		j.mu.Unlock()
		// Only an urgent change, also after it has failed, overwrites a file that may still become readable.
		if !urgent && !failing && j.reread(time.Now().After(patience)) != nil {
			pause.Reset(retry)
			continue
		}
		if !dirty {
			continue
		}
		if wait := time.Until(next); wait > 0 && !urgent {
			pause.Reset(wait)
			continue
		}
		file, err := j.save()
		switch {
		case err != nil && !failing:
			j.log.Warn("cannot write shutdown journal", "error", err)
		case err == nil && failing:
			j.log.Info("shutdown journal writable again")
		}
		failing = err != nil
		if failing {
			next = time.Now().Add(retry)
			pause.Reset(retry)
			j.refused(err)
			continue
		}
		next = time.Now().Add(markInterval)
		j.written(file)
	}
}

// save writes the newest state, and returns it.
func (j *Journal) save() (content, error) {
	if err := j.reread(true); err != nil {
		return content{}, err
	}
	j.mu.Lock()
	file := j.file
	j.mu.Unlock()
	return file, write(j.path, file)
}

// written records that file is on disk. The journal may already have a newer state.
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
	j.dirty, j.failed = false, nil
	close(j.clean)
	j.clean = nil
}

// refused wakes the callers of Flush after a failed write.
func (j *Journal) refused(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.failed = err
	close(j.clean)
	j.clean = make(chan struct{})
}
