package lastused

import (
	"context"
	"errors"
	"time"

	"hostler.io/hostler/runtime"
)

// Store keeps last-used times across restarts: a *statefile.File.
type Store interface {
	// Load reads what was saved last, if there is any.
	Load(into any)
	// SaveLazily has written what snapshot returns later, within half a minute.
	SaveLazily(snapshot func() any)
}

// Run reads the runtimes when events say so and regularly besides, until ctx ends, and
// returns its error.
func (t *Tracker) Run(ctx context.Context) error {
	var looked time.Time
	scans := make(map[string]lastScan)
	scanAt, woken := time.Now(), true
	for {
		timer := time.NewTimer(time.Until(scanAt))
		select {
		case <-ctx.Done():
			timer.Stop()
			t.end()
			return ctx.Err()
		case <-t.wake:
			timer.Stop()
			soon := time.Now().Add(eventPause)
			if gap := looked.Add(eventGap); gap.After(soon) {
				soon = gap
			}
			scanAt, woken = earlier(scanAt, soon), true
			continue
		case <-timer.C:
		}
		err := t.scan(ctx, scans, woken)
		if t.options.Observe != nil && ctx.Err() == nil {
			t.options.Observe(err)
		}
		looked, woken = time.Now(), false
		scanAt = looked.Add(t.pause())
	}
}

// end has it written until when the images of running containers were in use.
func (t *Tracker) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range t.images {
		t.dirty = t.dirty || r.inUse
	}
	t.save()
}

// pause is how long no event has to come before the next check.
func (t *Tracker) pause() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.blind) > 0 {
		return scanIntervalBlind
	}
	return scanInterval
}

// every is how long no event has to come before a runtime is read again.
func (t *Tracker) every(runtimeName string) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.blind[runtimeName] {
		return scanIntervalBlind
	}
	return scanInterval
}

// lastScan is the last check of a runtime.
type lastScan struct {
	at     time.Time
	failed bool
}

// scan lists images, then pods, of the runtimes: a container that is created in between shows that
// its image is in use. Unless all are to be read, runtimes whose events report changes are skipped
// until their time is due.
func (t *Tracker) scan(ctx context.Context, scans map[string]lastScan, all bool) error {
	var errs []error
	for _, rt := range t.options.Runtimes() {
		name, now := rt.Name(), time.Now()
		last := scans[name]
		if !all && !last.failed && now.Sub(last.at) < t.every(name) {
			continue
		}
		err := t.scanRuntime(ctx, rt)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		switch {
		case err != nil:
			errs = append(errs, runtime.MemberError{Runtime: name, Err: err})
			if !last.failed {
				t.options.Log.Warn("cannot track use of images", "runtime", name, "error", err)
			}
		case last.failed:
			t.options.Log.Info("use of images tracked again", "runtime", name)
		}
		scans[name] = lastScan{now, err != nil}
	}
	return errors.Join(errs...)
}

func (t *Tracker) scanRuntime(ctx context.Context, rt Runtime) error {
	ctx, cancel := context.WithTimeout(ctx, scanTimeout)
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

// load reads what the store holds.
func (t *Tracker) load() {
	var stored map[string]map[string]Use // by runtime and ID
	t.options.Store.Load(&stored)
	for runtimeName, images := range stored {
		for id, use := range images {
			t.images[imageKey{runtimeName, id}] = &record{Use: use, written: use.LastUsed}
		}
	}
}

// save has what changed written, and nothing if nothing did. The caller holds mu.
func (t *Tracker) save() {
	if t.dirty {
		t.dirty = false
		t.options.Store.SaveLazily(t.snapshot)
	}
}

// snapshot is what load reads.
func (t *Tracker) snapshot() any {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	stored := map[string]map[string]Use{}
	for key, r := range t.images {
		if r.inUse {
			r.LastUsed = now
		}
		r.written = r.LastUsed
		if stored[key.runtime] == nil {
			stored[key.runtime] = map[string]Use{}
		}
		stored[key.runtime][key.id] = Use{FirstSeen: asOf(now, r.FirstSeen), LastUsed: asOf(now, r.LastUsed)}
	}
	return stored
}

// asOf is a time by its age, not by what the wall clock said then: that may have been set
// right meanwhile.
func asOf(now, when time.Time) time.Time {
	if when.IsZero() {
		return when
	}
	return now.Round(0).UTC().Add(-now.Sub(when))
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
