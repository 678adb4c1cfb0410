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

// Run looks at the runtimes when events say so and regularly besides, until ctx ends, and
// returns its error.
func (t *Tracker) Run(ctx context.Context) error {
	var looked time.Time
	down := make(map[string]bool) // runtimes that did not answer the last time
	lookAt := time.Now()
	for {
		timer := time.NewTimer(time.Until(lookAt))
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
			lookAt = earlier(lookAt, soon)
			continue
		case <-timer.C:
		}
		err := t.look(ctx, down)
		if t.options.Observe != nil && ctx.Err() == nil {
			t.options.Observe(err)
		}
		looked = time.Now()
		lookAt = looked.Add(t.pause())
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
func (t *Tracker) look(ctx context.Context, down map[string]bool) error {
	var errs []error
	for _, rt := range t.options.Runtimes() {
		err := t.lookAt(ctx, rt)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		name := rt.Name()
		switch {
		case err != nil:
			errs = append(errs, runtime.MemberError{Runtime: name, Err: err})
			if !down[name] {
				t.options.Log.Warn("use of images cannot be seen", "runtime", name, "error", err)
			}
		case down[name]:
			t.options.Log.Info("use of images is seen again", "runtime", name)
		}
		down[name] = err != nil
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
