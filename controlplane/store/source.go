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
	kind string

	mu               sync.Mutex // guards the fields below
	listing          bool
	since, confirmed time.Time
	lost             bool // there was a gap
}

// NewSource returns the source of the objects of a kind for a Follower.
func NewSource(kind Kind, to Follower) *Source { return &Source{Follower: to, kind: kind.Name} }

// Begin implements Follower.
func (s *Source) Begin() {
	s.mu.Lock()
	s.listing = true
	s.mu.Unlock()
	s.Follower.Begin()
}

// Synced implements Follower.
func (s *Source) Synced() {
	s.Follower.Synced()
	s.mu.Lock()
	s.listing = false
	s.mu.Unlock()
}

// Reached implements Tracker.
func (s *Source) Reached(version string) { Reached(s.Follower, version) }

// Confirmed implements Confirmer.
func (s *Source) Confirmed(at time.Time) {
	s.mu.Lock()
	if s.confirmed.IsZero() || at.Sub(s.confirmed) > longestSilence {
		s.since, s.lost = at, !s.confirmed.IsZero()
	}
	if at.After(s.confirmed) {
		s.confirmed = at
	}
	s.mu.Unlock()
	Confirmed(s.Follower, at)
}

// Fresh says how recent the facts of a decision are. All times are of the monotonic clock.
type Fresh struct {
	// Since is since when the store has answered, and has reported all changes, without a gap.
	Since time.Time
	// Regained is when the last gap ended; zero if there was none since the start of this process.
	Regained time.Time
	// Confirmed is the moment up to which all changes are known.
	Confirmed time.Time
}

// fresh returns how recent the objects of the source are. contact is since when the store has
// answered without a gap: what was received before that is old.
func (s *Source) fresh(now, contact time.Time) (Fresh, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.listing || s.confirmed.IsZero():
		return Fresh{}, fmt.Errorf("reading %s", s.kind)
	case s.confirmed.Before(contact):
		return Fresh{}, fmt.Errorf("%s: %w since the store answers again", s.kind, ErrUnconfirmed)
	case now.Sub(s.confirmed) > longestSilence:
		return Fresh{}, fmt.Errorf("%s: %w for %v", s.kind, ErrUnconfirmed, now.Sub(s.confirmed).Round(time.Second))
	}
	f := Fresh{Since: s.since, Confirmed: s.confirmed}
	if s.lost {
		f.Regained = s.since
	}
	return f, nil
}

// Fresh returns how recent the objects of all sources are; ErrSilent or ErrRefused if the store does
// not answer at present, or an error that says which source is not recent enough.
func (c *Contact) Fresh(now time.Time, sources ...*Source) (Fresh, error) {
	since, err := c.Since(now)
	if err != nil {
		return Fresh{}, err
	}
	all := Fresh{Since: since, Regained: c.Regained(), Confirmed: now}
	for _, s := range sources {
		f, err := s.fresh(now, since)
		if err != nil {
			return Fresh{}, err
		}
		if f.Since.After(all.Since) {
			all.Since = f.Since
		}
		if f.Regained.After(all.Regained) {
			all.Regained = f.Regained
		}
		if f.Confirmed.Before(all.Confirmed) {
			all.Confirmed = f.Confirmed
		}
	}
	return all, nil
}
