package docker

import (
	"sync"
	"time"
)

// unitStops are the services whose containers are being stopped.
type unitStops struct {
	mu     sync.Mutex
	byUnit map[string]*unitStop
}

// unitStop is what is known of one of them. A service is held while its last containers end.
type unitStop struct {
	asked  map[string]time.Time // containers that were requested to end, by ID
	ending int                  // of those, how many stops are under way
	failed bool                 // one did not end
	end    func(begin bool)     // ends the hold; nil if there is none
}

// begin notes that a container of a unit is stopped now, and reports whether no other container of it
// goes on running. running are the starts of those that the last list has, by ID.
func (u *unitStops) begin(unit, id string, running map[string]time.Time) (last bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.byUnit == nil {
		u.byUnit = map[string]*unitStop{}
	}
	s := u.byUnit[unit]
	if s == nil {
		s = &unitStop{asked: map[string]time.Time{}}
		u.byUnit[unit] = s
	}
	s.asked[id] = time.Now()
	s.ending++
	for other, started := range running {
		if at, asked := s.asked[other]; !asked || started.After(at) {
			return false
		}
	}
	return s.end == nil
}

// hold notes how to end the hold of a unit's stop.
func (u *unitStops) hold(unit string, end func(begin bool)) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.byUnit[unit].end = end
}

// finish notes that a stop is over. It reports whether the unit's stop is held, and returns how to end
// the hold with the last stop; nil before that.
func (u *unitStops) finish(unit string, ended bool) (held bool, end func()) {
	u.mu.Lock()
	defer u.mu.Unlock()
	s := u.byUnit[unit]
	s.ending--
	s.failed = s.failed || !ended
	if s.end == nil || s.ending > 0 {
		return s.end != nil, nil
	}
	delete(u.byUnit, unit)
	return true, func() { s.end(!s.failed) }
}
