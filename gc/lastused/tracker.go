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
	// coarse is how old the stored last use of an image in use may be. Such an image counts as used
	// now, and the exact time is stored when its use ends.
	coarse = time.Hour
	// eventPause is how long events are collected before they trigger a scan.
	eventPause = 200 * time.Millisecond
	// eventGap is the minimum time between two scans that events trigger.
	eventGap = 5 * time.Second
	// scanInterval is the interval of scans without events, which finds what events have missed.
	scanInterval = 5 * time.Minute
	// scanIntervalBlind is the interval if a runtime sends no events.
	scanIntervalBlind = time.Minute
	// scanTimeout bounds one scan of a runtime.
	scanTimeout = 30 * time.Second
	// newsAge is how long a name in an event may be missing in lists. A list may have been made
	// before the event.
	newsAge = 2 * scanTimeout
	// maxFromEvents bounds the stored events while all scans fail.
	maxFromEvents = 10_000
	// steadyAfter is how long the tracker runs before it corrects times in the future. Before that,
	// the clock itself may be wrong.
	steadyAfter = time.Hour
)

// Runtime is the part of a runtime that the tracker reads.
type Runtime interface {
	// Name is the runtime's name in its lists.
	Name() string
	runtime.PodLister
	runtime.ImageLister
}

// Use is when an image was first seen and last used.
type Use struct {
	FirstSeen time.Time `json:"firstSeen,omitzero"` // first seen, or pulled again; zero if unknown
	LastUsed  time.Time `json:"lastUsed,omitzero"`  // zero if no use is known; the current time while a container uses it
}

// imageKey identifies an image by its ID, so that it stays the same when its tags change.
type imageKey struct{ runtime, id string }

// record is the state of an image. Times from this process keep the monotonic clock, so a change of
// the wall clock does not change the age of an image.
type record struct {
	Use
	inUse   bool
	missed  bool      // it was missing in the last scan
	written time.Time // the LastUsed in the store
}

// eventTimes are the times of events for one name of an image.
type eventTimes struct {
	at   time.Time // of the last event
	came time.Time // last pull; zero if there was none
	used time.Time // last use; zero if there was none
}

// Tracker records when images were last used. Observe passes complete lists, and Notify passes
// events in between. All methods are safe for concurrent use.
type Tracker struct {
	options Options
	started time.Time
	wake    chan struct{}

	mu         sync.Mutex // guards the fields below
	images     map[imageKey]*record
	containers map[imageKey]imageKey   // running or created container (runtime, ID) to its image
	fromEvents map[imageKey]eventTimes // by runtime and the name in the event, since the last scan
	blind      map[string]bool         // runtimes without events
	dirty      bool                    // images differ from the stored ones
}

// Options are the options of a Tracker.
type Options struct {
	Store    Store
	Runtimes func() []Runtime // current runtimes of this host
	// Observe is called with the result of each scan; nil if not needed.
	Observe func(error)
	Log     *slog.Logger
}

// New creates a Tracker, and loads the stored times.
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

// Use returns when an image was first seen and last used.
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

// Observe records the complete lists of a runtime's pods and images.
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
		// A single list may omit an image while its tag changes.
		if r.missed {
			t.forget(key)
		}
		r.missed, r.inUse = true, false
	}
	// Keep events that may be newer than the list.
	maps.DeleteFunc(t.fromEvents, func(ref imageKey, n eventTimes) bool {
		return ref.runtime == runtimeName && now.Sub(n.at) > newsAge
	})
}

// observeImage updates one record. The caller holds mu.
func (t *Tracker) observeImage(key imageKey, img *runtime.Image, refs []string, users gc.Users, now time.Time) {
	var came, used time.Time // latest event of all names
	for _, ref := range refs {
		name := imageKey{key.runtime, ref}
		n, reported := t.fromEvents[name]
		if !reported {
			continue
		}
		came, used = later(came, n.came), later(used, n.used)
		delete(t.fromEvents, name)
	}
	if !img.CreatedAt.After(now) { // some runtimes report the time of the last pull
		came = later(came, img.CreatedAt)
	}
	r := t.images[key]
	if r == nil {
		r = &record{Use: Use{FirstSeen: now}}
		t.dirty = true
		if !came.IsZero() { // otherwise all images would seem to be as old as the first scan
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
		t.dirty = true // the last container has ended, so store the exact time
	}
}

// use records a use of an image, unless a later one is known. The caller holds mu.
func (t *Tracker) use(r *record, when, now time.Time) {
	if when.After(now) {
		when = now
	}
	if when.After(r.LastUsed) {
		r.LastUsed, t.dirty = when, true
	}
}

// steady replaces times in the future by the current time. It does so only after steadyAfter,
// because right after a boot the clock may be wrong.
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

// Forget removes the record of an image that was removed. If it is pulled again, it is new.
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

// Notify records an event. It does not block.
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
		// The container may end before the next scan, so record the use now.
		if e.Image != "" {
			t.note(imageKey{e.Runtime, gc.NormalReference(e.Image)}, eventTimes{at: now, used: when})
		}
	case runtime.Changed:
		// The image was pulled again, or its name now refers to it.
		if e.Image != "" {
			t.note(imageKey{e.Runtime, gc.NormalReference(e.Image)}, eventTimes{at: now, came: when})
		}
	case runtime.ImageRemoved:
		return // the next scan finds which image it was
	}
	t.trigger()
}

// note stores an event until the next scan. The caller holds mu.
func (t *Tracker) note(name imageKey, n eventTimes) {
	if len(t.fromEvents) >= maxFromEvents {
		clear(t.fromEvents)
	}
	old := t.fromEvents[name]
	t.fromEvents[name] = eventTimes{at: n.at, came: later(old.came, n.came), used: later(old.used, n.used)}
}

// SetBlind sets whether a runtime sends no events. Such a runtime is scanned more often. When
// events return, the runtime is scanned soon, because it may have restarted.
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

// trigger makes Run scan soon.
func (t *Tracker) trigger() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// NewsOf reports whether an image was pulled or used after the recorded times, according to events
// or a scan.
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
