package lastused

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	"hostler.io/hostler/runtime"
)

// Store keeps last-used times across restarts: small entries under keys that
// mean nothing to it. The tracker calls it from one goroutine at a time.
type Store interface {
	// Load returns all entries.
	Load() (map[string][]byte, error)
	// Write puts and removes entries, all or none of them. Removing a missing
	// one succeeds.
	Write(put map[string][]byte, remove []string) error
}

// entryVersion leads every entry, which is then FirstSeen and LastUsed in
// nanoseconds since 1970, big-endian, 0 for unknown.
const (
	entryVersion = 1
	entryBytes   = 1 + 8 + 8
)

// Run looks at the runtimes when events say so and regularly besides, and
// writes what changed, until ctx ends. It returns ctx's error, joined with that
// of the last write.
func (t *Tracker) Run(ctx context.Context) error {
	var looked time.Time
	lookAt := time.Now()
	writeAt := lookAt
	for {
		timer := time.NewTimer(time.Until(earlier(lookAt, writeAt)))
		select {
		case <-ctx.Done():
			timer.Stop()
			return errors.Join(ctx.Err(), t.Close())
		case <-t.wake:
			timer.Stop()
			soon := time.Now().Add(eventPause)
			if gap := looked.Add(eventGap); gap.After(soon) {
				soon = gap
			}
			lookAt = earlier(lookAt, soon)
			continue
		case <-timer.C:
		}
		if !time.Now().Before(lookAt) {
			err := t.look(ctx)
			if t.options.Observe != nil && ctx.Err() == nil {
				t.options.Observe(err)
			}
			looked = time.Now()
			lookAt = looked.Add(t.pause())
		}
		if !time.Now().Before(writeAt) {
			_ = t.flush() // logged where it begins and ends; memory goes on
			writeAt = time.Now().Add(writeEvery)
		}
	}
}

// Close stores what is not stored yet. The tracker goes on working, so that
// calling it twice does no harm.
func (t *Tracker) Close() error {
	t.mu.Lock()
	now := time.Now()
	for _, r := range t.images {
		if r.inUse {
			r.LastUsed, r.dirty = now, true
		}
	}
	t.mu.Unlock()
	return t.flush()
}

// pause is how long no event has to come before the next look.
func (t *Tracker) pause() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.blind) > 0 {
		return lookEveryBlind
	}
	return lookEvery
}

// look lists what the runtimes have, images first: a container
// created in between then shows that its image is in use.
func (t *Tracker) look(ctx context.Context) error {
	var errs []error
	for _, rt := range t.options.Runtimes() {
		err := t.lookAt(ctx, rt)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		name := rt.Name()
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("runtime %s: %w", name, err))
			if !t.down[name] {
				t.options.Log.Warn("use of images cannot be seen", "runtime", name, "error", err)
			}
		case t.down[name]:
			t.options.Log.Info("use of images is seen again", "runtime", name)
		}
		t.down[name] = err != nil
	}
	return errors.Join(errs...)
}

func (t *Tracker) lookAt(ctx context.Context, rt Runtime) error {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	images, err := runtime.DetailedImages(ctx, rt)
	if err != nil {
		return err
	}
	pods, err := rt.Pods(ctx)
	if err != nil {
		return err
	}
	t.Observe(rt.Name(), pods, images)
	return nil
}

func (t *Tracker) load() error {
	entries, err := t.options.Store.Load()
	if err != nil {
		return fmt.Errorf("load last use of images: %w", err)
	}
	faulty := 0
	for key, value := range entries {
		runtimeName, id, found := strings.Cut(key, "\x00")
		use, ok := decodeUse(value)
		if !found || !ok {
			faulty++
			continue
		}
		t.images[imageKey{runtimeName, id}] = &record{Use: use, written: use.LastUsed}
	}
	if faulty > 0 {
		t.options.Log.Warn("last use of some images is unreadable and counts from now", "entries", faulty)
	}
	return nil
}

// flush writes what changed, and nothing if nothing did. What cannot be written
// is tried again with the next flush.
func (t *Tracker) flush() error {
	t.writing.Lock()
	defer t.writing.Unlock()
	put, remove := t.changes()
	if len(put) == 0 && len(remove) == 0 {
		return nil
	}
	err := t.options.Store.Write(put, remove)
	if err != nil {
		t.restore(put, remove)
		err = fmt.Errorf("store last use of images: %w", err)
		if !t.failing {
			t.options.Log.Warn("last use of images is kept in memory only", "error", err)
		}
	} else if t.failing {
		t.options.Log.Info("last use of images is stored again")
	}
	t.failing = err != nil
	return err
}

// changes takes what is to be written and counts it as written.
func (t *Tracker) changes() (put map[string][]byte, remove []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	put = make(map[string][]byte)
	for key, r := range t.images {
		if r.dirty {
			put[key.runtime+"\x00"+key.id] = encodeUse(r.Use, now)
			r.dirty, r.written = false, r.LastUsed
		}
	}
	for key := range t.forgotten {
		remove = append(remove, key.runtime+"\x00"+key.id)
	}
	clear(t.forgotten)
	return put, remove
}

// restore takes back what changes counted as written.
func (t *Tracker) restore(put map[string][]byte, remove []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for key := range put {
		runtimeName, id, _ := strings.Cut(key, "\x00")
		if r := t.images[imageKey{runtimeName, id}]; r != nil {
			r.dirty = true
		}
	}
	for _, key := range remove {
		runtimeName, id, _ := strings.Cut(key, "\x00")
		if t.images[imageKey{runtimeName, id}] == nil {
			t.forgotten[imageKey{runtimeName, id}] = true
		}
	}
}

func encodeUse(u Use, now time.Time) []byte {
	entry := make([]byte, 1, entryBytes)
	entry[0] = entryVersion
	for _, when := range []time.Time{u.FirstSeen, u.LastUsed} {
		ns := int64(0)
		if !when.IsZero() {
			// By its age, not by what the wall clock said then: that may have
			// been set right meanwhile.
			ns = now.Round(0).Add(-now.Sub(when)).UnixNano()
		}
		entry = binary.BigEndian.AppendUint64(entry, uint64(ns))
	}
	return entry
}

func decodeUse(entry []byte) (Use, bool) {
	if len(entry) != entryBytes || entry[0] != entryVersion {
		return Use{}, false
	}
	var times [2]time.Time
	for i := range times {
		if ns := int64(binary.BigEndian.Uint64(entry[1+8*i:])); ns != 0 {
			times[i] = time.Unix(0, ns)
		}
	}
	return Use{FirstSeen: times[0], LastUsed: times[1]}, true
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
