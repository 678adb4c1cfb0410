package store

import (
	"sync"
	"time"
)

// Sightings records when this process has last seen the records of elections change. It is safe for concurrent use.
type Sightings struct {
	mu   sync.Mutex // guards last
	last map[string]sighting
}

// sighting is when a record was first seen with a version, by the monotonic clock.
type sighting struct {
	version string
	at      time.Time
}

// Alive reports whether the term in a controller's record may last: the record was seen to change within its ttl. Only
// the leader writes it, so nobody else can make the term last longer.
func (s *Sightings) Alive(controller, version string, ttl time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if seen, known := s.last[controller]; known && seen.version == version {
		return now.Sub(seen.at) < ttl
	}
	if s.last == nil {
		s.last = map[string]sighting{}
	}
	s.last[controller] = sighting{version, now}
	return true
}
