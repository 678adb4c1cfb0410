package store

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

const (
	// ConfirmInterval is the time between two confirmations of a Follow while the store answers. A store
	// that reports its progress less often confirms less often.
	ConfirmInterval = time.Second
	// longestSilence is how long a Follow may confirm nothing. Kubernetes reports progress every ten
	// seconds.
	longestSilence = 30 * time.Second
	// FollowRetry is the longest pause before a Follow that has ended starts again, apart from jitter: no decision is
	// made without it, and a store may be back.
	FollowRetry = 5 * time.Second
)

// ErrUnconfirmed is why no decisions are made from objects that may have changed since they were
// received.
var ErrUnconfirmed = errors.New("not confirmed")

// Confirmer is a Follower that has to know how recent its objects are.
type Confirmer interface {
	Follower
	// Confirmed is called when the Follower has received everything that was stored at a moment by the
	// monotonic clock: after each list, and about every ConfirmInterval after that. An answer of the
	// store counts from when it was requested.
	Confirmed(at time.Time)
}

// Confirmed forwards a confirmation to a Follower that is a Confirmer.
func Confirmed(f Follower, at time.Time) {
	if c, ok := f.(Confirmer); ok {
		c.Confirmed(at)
	}
}

// Source is a Follower that forwards each call to another one, and records up to which moment that
// one has received everything. It is safe for concurrent use.
type Source struct {
	Follower
	record
}

// NewSource returns the source of the objects of a kind for a Follower.
func NewSource(kind Kind, to Follower) *Source {
	return &Source{Follower: to, record: record{kind: kind.Name, listing: true}}
}

// Begin implements Follower.
func (s *Source) Begin() {
	s.record.begin()
	s.Follower.Begin()
}

// Set implements Follower.
func (s *Source) Set(name string, object Object) {
	s.record.count()
	s.Follower.Set(name, object)
}

// Unreadable implements Follower.
func (s *Source) Unreadable(name string, err error) {
	s.record.count()
	s.Follower.Unreadable(name, err)
}

// Synced implements Follower.
func (s *Source) Synced() {
	s.Follower.Synced()
	s.record.synced()
}

// Reached implements Tracker.
func (s *Source) Reached(version string) { Reached(s.Follower, version) }

// Confirmed implements Confirmer.
func (s *Source) Confirmed(at time.Time) {
	s.record.Confirmed(at)
	Confirmed(s.Follower, at)
}

// Origin is a Source, or another Follower that records how recent its objects are.
type Origin interface {
	Confirmer
	fresh(now, contact time.Time) (Fresh, error)
	listed() error
}

// record is up to which moment a Follower has received everything.
type record struct {
	kind string

	mu                 sync.Mutex // guards the fields below
	listing            bool       // also before the first list
	objects            int        // of the list in progress so far
	since, confirmedAt time.Time
	earlier            span // of the process before this one
}

func (r *record) begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.listing, r.objects = true, 0
}

// count counts an object of a list. Later objects are not counted.
func (r *record) count() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.listing {
		r.objects++
	}
}

func (r *record) synced() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.listing = false
}

// Confirmed records a confirmation.
func (r *record) Confirmed(at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.confirmedAt.IsZero():
		r.since = r.earlier.until(at, longestSilence)
	case at.Sub(r.confirmedAt) > longestSilence:
		r.since = at
	}
	if at.After(r.confirmedAt) {
		r.confirmedAt = at
	}
}

// Resume makes the confirmations that the process before this one had count, if the store confirms soon enough.
func (r *record) Resume(since, last time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.earlier = span{since, last}
}

// ConfirmedAt returns the moment up to which everything is known. What the Follower receives next was
// stored after that.
func (r *record) ConfirmedAt() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.confirmedAt
}

// Fresh says how recent the facts of a decision are. All times are of the monotonic clock.
type Fresh struct {
	// Since is since when the store has answered, and has reported all changes, without a gap.
	Since time.Time
	// Restored is when the store answered again after it went back to an earlier state; zero if it did
	// not since the start of this process.
	Restored time.Time
	// Confirmed is the moment up to which all changes are known.
	Confirmed time.Time
}

// fresh returns how recent the objects are. contact is since when the store has answered without a
// gap: what was received before that is old.
func (r *record) fresh(now, contact time.Time) (Fresh, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.listing || r.confirmedAt.IsZero():
		return Fresh{}, r.isListing()
	case r.confirmedAt.Before(contact):
		return Fresh{}, fmt.Errorf("%s: %w since the store answers", r.kind, ErrUnconfirmed)
	case now.Sub(r.confirmedAt) > longestSilence:
		return Fresh{}, fmt.Errorf("%s: %w for %v", r.kind, ErrUnconfirmed, now.Sub(r.confirmedAt).Round(time.Second))
	}
	return Fresh{Since: r.since, Confirmed: r.confirmedAt}, nil
}

// listed returns an error that says how far the list is while the objects are listed.
func (r *record) listed() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.listing {
		return r.isListing()
	}
	return nil
}

// isListing returns how far the list is. The caller holds mu.
func (r *record) isListing() error { return fmt.Errorf("listing %s: %d so far", r.kind, r.objects) }

// Listed returns an error while the store does not answer, or while it lists the objects of a source. It is for
// sources that the store does not confirm.
func (c *Contact) Listed(now time.Time, sources ...Origin) error {
	if _, err := c.Since(now); err != nil {
		return err
	}
	for _, s := range sources {
		if err := s.listed(); err != nil {
			return err
		}
	}
	return nil
}

// Fresh returns how recent the objects of all sources are; ErrSilent or ErrRefused if the store does
// not answer at present, or an error that says which source is not recent enough.
func (c *Contact) Fresh(now time.Time, sources ...Origin) (Fresh, error) {
	since, err := c.Since(now)
	if err != nil {
		return Fresh{}, err
	}
	all := Fresh{Since: since, Restored: c.restoredAt(), Confirmed: now}
	for _, s := range sources {
		f, err := s.fresh(now, since)
		if err != nil {
			return Fresh{}, err
		}
		if f.Since.After(all.Since) {
			all.Since = f.Since
		}
		if f.Confirmed.Before(all.Confirmed) {
			all.Confirmed = f.Confirmed
		}
	}
	return all, nil
}
