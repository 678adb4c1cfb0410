package lastused

import (
	"context"
	"errors"
	"time"

	"hostler.io/hostler/runtime"
)

// Store persists last-used times across restarts: a *statefile.File.
type Store interface {
	// Load reads the saved value, if there is one.
	Load(into any)
	// SaveLazily calls snapshot within half a minute and writes its result.
	SaveLazily(snapshot func() any)
}

// Run scans the runtimes after events and at an interval, until ctx ends. It returns the error of
// ctx.
func (t *Tracker) Run(ctx context.Context) error {
	var scannedAt time.Time
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
			if gap := scannedAt.Add(eventGap); gap.After(soon) {
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
		scannedAt, woken = time.Now(), false
		scanAt = scannedAt.Add(t.pause())
	}
}

// end saves the current time as the last use of images in use.
func (t *Tracker) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range t.images {
		t.dirty = t.dirty || r.inUse
	}
	t.save()
}

// pause is the time without events until the next scan.
func (t *Tracker) pause() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.blind) > 0 {
		return scanIntervalBlind
	}
	return scanInterval
}

// every is the time without events until a runtime is scanned again.
func (t *Tracker) every(runtimeName string) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.blind[runtimeName] {
		return scanIntervalBlind
	}
	return scanInterval
}

// lastScan is the last scan of a runtime.
type lastScan struct {
	at     time.Time
	failed bool
}

// scan lists images, then pods, of the runtimes. In this order, a container that is created in
// between shows that its image is in use. Unless all is set, scan skips runtimes whose interval is
// not over.
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

// load reads the stored times.
func (t *Tracker) load() {
	var stored map[string]map[string]Use // by runtime and ID
	t.options.Store.Load(&stored)
	for runtimeName, images := range stored {
		for id, use := range images {
			t.images[imageKey{runtimeName, id}] = &record{Use: use, written: use.LastUsed}
		}
	}
}

// save stores the times if they have changed. The caller holds mu.
func (t *Tracker) save() {
	if t.dirty {
		t.dirty = false
		t.options.Store.SaveLazily(t.snapshot)
	}
}

// snapshot returns the value that load reads.
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

// asOf converts a time with its monotonic age, because the wall clock may have been corrected
// since.
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
