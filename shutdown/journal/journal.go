// Package journal keeps the results of shutdowns on disk, pod by pod. The next process of this
// boot continues an interrupted drain from it; the next boot reports it.
//
// It owns the record and its file. From the file of an earlier boot it derives only what the
// file proves. Writes never delay a shutdown.
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

// Journal keeps on disk how shutdowns went, so that an agent that was killed in
// the middle continues where it stood, and the next boot knows. Changes are
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

	unread  bool // guarded by mu: the file may be whole, but could not be read yet
	first   bool // guarded by mu: the file was another boot's when this process read it
	settled bool // guarded by mu: Settle was called, so a drain in that file is over
}

const (
	// markInterval is how often at most the list of running pods is written.
	markInterval = 2 * time.Second
	// retry is the pause after a failed write.
	retry = 5 * time.Second
)

// Open reads the journal at path. bootID is the kernel's boot ID of this boot, with @ and systemd's
// start if known. If the file has another boot ID, its drain becomes the last shutdown. An invalid
// file is renamed, with a warning. A file that cannot be read is read again before it is overwritten.
// No fault is fatal.
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
	j.file = file.takenUp(bootID)
	return j
}

// What is wrong with a file that is set aside, as the end of its name.
const (
	corrupt    = ".corrupt"
	unreadable = ".unreadable"
)

// setAside gives the file another name, where nothing writes over it.
func (j *Journal) setAside(fault string, reason error) error {
	aside := j.path + fault
	if err := os.Rename(j.path, aside); err != nil {
		return fmt.Errorf("move corrupt shutdown journal aside: %w", err)
	}
	j.log.Warn("moved corrupt shutdown journal aside, result of the last shutdown unknown", "path", j.path, "aside", aside, "error", reason)
	return nil
}

// reread reads what Open could not, in the last moment before it is written
// over. What still cannot be read is kept under another name: a person may have
// more luck with it. Only Run calls it.
func (j *Journal) reread() error {
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
	default:
		aside = j.setAside(unreadable, err)
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
	file = file.takenUp(j.file.BootID)
	if j.settled {
		file.settle()
	}
	// What this process has seen itself is newer.
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
		j.file.Drained, j.file.DrainedUnits = file.Drained, file.DrainedUnits
		j.file.Uncordoned = j.file.Uncordoned || file.Uncordoned
	} else if len(own.Earlier) == 0 {
		j.file.Drained = own.withEarlier(file.earlier(own))
	}
	if j.file.Services == nil {
		j.file.Services = file.Services
	}
	return nil
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

// LastBoot is how the boot before this one ended; nil if nothing is known.
func (j *Journal) LastBoot() *Record {
	j.mu.Lock()
	defer j.mu.Unlock()
	if r := j.file.Last; r != nil && !SameBoot(r.BootID, j.file.BootID) {
		return r
	}
	return nil
}

// Found reports whether the file was from another boot and not seen by an earlier process of this
// boot, and whether it could be read. An unreadable file may become readable later.
func (j *Journal) Found() (another, read bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.first, !j.unread
}

// keep is how long the objects of a shutdown are kept: long enough for a person to inspect them.
const keep = 24 * time.Hour

// Kept returns the drains whose pods should not be collected: this boot's, also
// while it runs and if it was cancelled, and the last shutdown, each for a day
// from its end or from the boot after it, whichever is later. The wall clock now
// may have been set right since, forth or back: uptime, the time since the kernel
// started, holds as well, and what seems to end more than a day from now does not
// count.
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

// BootID names the present boot.
func (j *Journal) BootID() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.file.BootID
}

// Current is this boot's drain, if there was one and it was not cancelled.
func (j *Journal) Current() *Record {
	j.mu.Lock()
	defer j.mu.Unlock()
	if r := j.file.Record; r != nil && r.CancelledAt.IsZero() {
		return r
	}
	return nil
}

// Put records the state of the drain. The record must not be changed afterwards.
func (j *Journal) Put(r *Record) {
	j.change(true, func(f *content) bool { f.Record = r; return true })
}

// PutDrained records the state of a manual drain that has requested a stop: one with nothing to stop
// does not replace an earlier record. It keeps and returns the pods that earlier drains of the same
// maintenance stopped. The record must not be changed afterwards.
func (j *Journal) PutDrained(r *Record) (earlier []PodRecord) {
	j.change(true, func(f *content) bool {
		earlier = f.earlier(r)
		if !slices.ContainsFunc(r.Pods, func(p PodRecord) bool { return !p.StartedAt.IsZero() }) {
			return false
		}
		if f.Drained == nil || !f.Drained.StartedAt.Equal(r.StartedAt) {
			f.Uncordoned = false
		}
		f.Drained = r.withEarlier(earlier)
		return true
	})
	return earlier
}

// Settle ends the record of this boot's drain, because the host lives on: a finished drain becomes
// the last shutdown. It returns whether there was one.
func (j *Journal) Settle() (changed bool) {
	return j.change(true, func(f *content) bool {
		j.settled = true
		return f.settle()
	})
}

// Mark notes which pods run while the guard is on.
func (j *Journal) Mark(pods []Ref) {
	j.change(false, func(f *content) bool {
		if f.Watch != nil && slices.Equal(f.Watch.Pods, pods) {
			return false
		}
		f.Watch = &watch{At: time.Now().UTC(), Pods: pods}
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

// Flush writes pending records now, and waits until ctx ends or the disk refuses. A failed write is
// repeated later.
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
	var next time.Time // when records that are not urgent may be written
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
			j.refused()
			continue
		}
		next = time.Now().Add(markInterval)
		j.written(file)
	}
}

// save writes the newest state, and returns which that was.
func (j *Journal) save() (content, error) {
	if err := j.reread(); err != nil {
		return content{}, err
	}
	j.mu.Lock()
	file := j.file
	j.mu.Unlock()
	return file, write(j.path, file)
}

// written records that file, perhaps not the latest content, is on disk.
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

// refused releases the callers that wait for a write that has failed.
func (j *Journal) refused() {
	j.mu.Lock()
	defer j.mu.Unlock()
	close(j.clean)
	j.clean = make(chan struct{})
}
