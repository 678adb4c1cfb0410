// Package lastused records when images were pulled and last used, so that a collection can remove
// the least recently used first.
//
// It owns the [Tracker], which learns from events and from lists of pods and images, and the
// [Store] interface that persists its knowledge. The policies decide what a time means.
package lastused

import (
	"errors"
	"log/slog"
	"maps"
	"sync"
	"time"

	"hostler.io/hostler/gc"
	"hostler.io/hostler/runtime"
)

const (
	// coarse is how far the stored time of an image in use may lag behind: it
	// counts as used now anyway, and is stored exactly when its use ends.
	coarse = time.Hour
	// eventPause lets events gather before they cause a check.
	eventPause = 200 * time.Millisecond
	// eventGap is the least time between two checks that events cause.
	eventGap = 5 * time.Second
	// scanInterval is the time between checks that nothing causes, for what events
	// have missed.
	scanInterval = 5 * time.Minute
	// scanIntervalBlind is the same where a runtime sends no events.
	scanIntervalBlind = time.Minute
	// scanTimeout bounds one question to a runtime.
	scanTimeout = 30 * time.Second
	// newsAge is how long a name that came may be missing in lists, which are
	// made some time before they are taken in.
	newsAge = 2 * scanTimeout
	// maxFromEvents bounds the names kept while no list succeeds.
	maxFromEvents = 10_000
	// steadyAfter is how long the tracker runs before it believes that times in
	// the future are wrong and not the clock.
	steadyAfter = time.Hour
)

// Runtime is what the tracker reads.
type Runtime interface {
	// Name is the runtime's name as in its lists.
	Name() string
	runtime.PodLister
	runtime.ImageLister
}

// Use is when an image came and when it was last used.
type Use struct {
	FirstSeen time.Time `json:"firstSeen,omitzero"` // first seen, or pulled again; zero if it is not known at all
	LastUsed  time.Time `json:"lastUsed,omitzero"`  // zero if no use is known; now while a container runs from it
}

// imageKey distinguishes images across renames of their tags.
type imageKey struct{ runtime, id string }

// record is what the tracker knows of an image. Times keep the monotonic clock
// where they were taken in this process, so that a step of the wall clock does
// not age an image.
type record struct {
	Use
	inUse   bool
	missed  bool      // it was absent at the last check
	written time.Time // the LastUsed that was stored last
}

// eventTimes are the times that events reported for one name of an image.
type eventTimes struct {
	at   time.Time // of the last event
	came time.Time // zero if it did not come
	used time.Time // zero if nothing was made from it
}

// Tracker knows when images were last used. It is fed by Observe, with whole
// lists, and by Notify, with events in between; all methods are safe for
// concurrent use.
type Tracker struct {
	options Options
	started time.Time
	wake    chan struct{}

	mu         sync.Mutex // guards what follows
	images     map[imageKey]*record
	containers map[imageKey]imageKey   // live container (runtime, ID) to its image
	fromEvents map[imageKey]eventTimes // of images, by the names in events since the last check
	blind      map[string]bool         // runtimes without events
	dirty      bool                    // images differ from what the store was given
}

// Options is what a Tracker needs.
type Options struct {
	Store    Store
	Runtimes func() []Runtime // those of this host, as of now
	// Observe is called after each check of Run with what went wrong, or nil;
	// nil for nobody.
	Observe func(error)
	Log     *slog.Logger
}

// New reads what the store holds.
func New(options Options) (*Tracker, error) {
	if options.Store == nil || options.Runtimes == nil || options.Log == nil {
		return nil, errors.New("last-used tracker: store, runtimes and logger are required")
	}
	t := &Tracker{
		options: options, started: time.Now(),
		wake:       make(chan struct{}, 1),
		images:     make(map[imageKey]*record),
		containers: make(map[imageKey]imageKey),
		fromEvents: make(map[imageKey]eventTimes),
		blind:      make(map[string]bool),
	}
	t.load()
	return t, nil
}

// Use returns what is known of an image.
func (t *Tracker) Use(runtimeName, id string) Use {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.images[imageKey{runtimeName, id}]
	if r == nil {
		return Use{}
	}
	use := r.Use
	if r.inUse {
		use.LastUsed = time.Now()
	}
	return use
}

// Observe takes in a whole list of a runtime's pods and images.
func (t *Tracker) Observe(runtimeName string, pods []runtime.Pod, images []runtime.Image) {
	users := gc.UsersOf(pods)
	t.mu.Lock()
	defer t.mu.Unlock()
	defer t.save()
	now := time.Now()
	maps.DeleteFunc(t.containers, func(key, _ imageKey) bool { return key.runtime == runtimeName })
	seen := make(map[imageKey]bool, len(images))
	var refs []string
	for i := range images {
		img := &images[i]
		key := imageKey{runtimeName, img.ID}
		seen[key] = true
		refs = gc.References(refs[:0], img)
		t.observeImage(key, img, refs, users, now)
	}
	for key, r := range t.images {
		if key.runtime != runtimeName || seen[key] {
			continue
		}
		// A single list may miss an image that is just being tagged again.
		if r.missed {
			t.forget(key)
		}
		r.missed, r.inUse = true, false
	}
	// What the list does not show may have come after it was made.
	maps.DeleteFunc(t.fromEvents, func(ref imageKey, n eventTimes) bool {
		return ref.runtime == runtimeName && now.Sub(n.at) > newsAge
	})
}

// observeImage updates one record. The caller holds mu.
func (t *Tracker) observeImage(key imageKey, img *runtime.Image, refs []string, users gc.Users, now time.Time) {
	var came, used time.Time // from events; the latest of its names
	for _, ref := range refs {
		name := imageKey{key.runtime, ref}
		n, reported := t.fromEvents[name]
		if !reported {
			continue
		}
		came, used = later(came, n.came), later(used, n.used)
		delete(t.fromEvents, name)
	}
	if !img.CreatedAt.After(now) { // the runtime reports pulls that were not watched
		came = later(came, img.CreatedAt)
	}
	r := t.images[key]
	if r == nil {
		r = &record{Use: Use{FirstSeen: now}}
		t.dirty = true
		if !came.IsZero() { // one check finds many images that did not come together
			r.FirstSeen = came
		}
		t.images[key] = r
	}
	r.missed = false
	t.steady(r, now)
	if came.After(r.FirstSeen) {
		r.FirstSeen, t.dirty = came, true
	}
	t.use(r, used, now)
	wasInUse := r.inUse
	r.inUse = false
	users.Each(key.runtime, refs, func(c *runtime.Container) {
		if c.State == runtime.Running {
			r.inUse = true
		}
		if c.State == runtime.Running || c.State == runtime.Created {
			t.containers[imageKey{key.runtime, c.ID}] = key
		}
		t.use(r, c.CreatedAt, now)
		t.use(r, c.FinishedAt, now)
	})
	switch {
	case r.inUse:
		r.LastUsed = now
		t.dirty = t.dirty || now.Sub(r.written) >= coarse
	case wasInUse && !r.LastUsed.Equal(r.written):
		t.dirty = true // its last container is gone: from now on the time counts
	}
}

// use moves the last use on. The caller holds mu.
func (t *Tracker) use(r *record, when, now time.Time) {
	if when.After(now) {
		when = now
	}
	if when.After(r.LastUsed) {
		r.LastUsed, t.dirty = when, true
	}
}

// steady takes times in the future back to now once the clock can be trusted:
// right after boot it is rather the clock that is wrong.
func (t *Tracker) steady(r *record, now time.Time) {
	if now.Sub(t.started) < steadyAfter {
		return
	}
	for _, when := range []*time.Time{&r.FirstSeen, &r.LastUsed} {
		if when.After(now) {
			*when, t.dirty = now, true
		}
	}
}

// Forget drops an image that was removed: if it comes again, it is new.
func (t *Tracker) Forget(runtimeName, id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forget(imageKey{runtimeName, id})
	t.save()
}

func (t *Tracker) forget(key imageKey) {
	if t.images[key] != nil {
		delete(t.images, key)
		t.dirty = true
	}
}

// Notify takes in an event. It does not wait.
func (t *Tracker) Notify(e runtime.Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	defer t.save()
	now := time.Now()
	when := e.Time
	if when.IsZero() || when.After(now) {
		when = now
	}
	switch e.Type {
	case runtime.ContainerExited, runtime.ContainerStarted, runtime.ContainerRemoved:
		key, known := t.containers[imageKey{e.Runtime, e.ContainerID}]
		if r := t.images[key]; known && r != nil {
			t.use(r, when, now)
			if e.Type == runtime.ContainerStarted {
				r.inUse = true
				return
			}
		}
	case runtime.ImageAdded:
		t.note(imageKey{e.Runtime, gc.NormalReference(e.Image)}, eventTimes{at: now, came: when})
	case runtime.ContainerCreated:
		// Gone before the next check, it would have been nobody's use.
		if e.Image != "" {
			t.note(imageKey{e.Runtime, gc.NormalReference(e.Image)}, eventTimes{at: now, used: when})
		}
	case runtime.Changed:
		// Pulled again, or a name that moved.
		if e.Image != "" {
			t.note(imageKey{e.Runtime, gc.NormalReference(e.Image)}, eventTimes{at: now, came: when})
		}
	case runtime.ImageRemoved:
		return // the next regular look finds out which
	}
	t.trigger()
}

// note keeps what an event reported until the next check. The caller holds mu.
func (t *Tracker) note(name imageKey, n eventTimes) {
	if len(t.fromEvents) >= maxFromEvents {
		clear(t.fromEvents)
	}
	old := t.fromEvents[name]
	t.fromEvents[name] = eventTimes{at: n.at, came: later(old.came, n.came), used: later(old.used, n.used)}
}

// SetBlind says whether a runtime sends no events now, so that it has to be
// read more often. One that begins to is read soon: it may be back.
func (t *Tracker) SetBlind(runtimeName string, blind bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.blind[runtimeName] == blind {
		return
	}
	if blind {
		t.blind[runtimeName] = true
	} else {
		delete(t.blind, runtimeName)
	}
	t.trigger()
}

// trigger makes Run look soon.
func (t *Tracker) trigger() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// NewsOf reports whether an image was pulled or used after the recorded times, by events or by a
// check.
func (t *Tracker) NewsOf(img *runtime.Image, refs []string, known Use) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, ref := range refs {
		if _, reported := t.fromEvents[imageKey{img.Runtime, ref}]; reported {
			return true
		}
	}
	r := t.images[imageKey{img.Runtime, img.ID}]
	return r != nil && (r.FirstSeen.After(known.FirstSeen) || r.LastUsed.After(known.LastUsed))
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
