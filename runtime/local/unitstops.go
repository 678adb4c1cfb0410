package local

import (
	"context"
	"sync"
	"time"
)

// UnitStops are the services whose containers are being stopped. The stop of a service is held while
// its last containers end. It is safe for concurrent use.
type UnitStops struct {
	mu     sync.Mutex
	byUnit map[string]*unitEnds
}

// unitEnds are the ends of the containers of one service, by their IDs.
type unitEnds struct {
	asked  map[string]time.Time // when they were requested to end
	ending map[string]time.Time // when their grace ends, of those that have not ended
	failed map[string]bool      // those that run on
	end    func(begin bool)     // ends the hold; nil if there is none
}

// Stop stops a container of a service by stop, and holds the stop of the service if no other container
// of it continues running: running are the starts of those that the last list has, by ID. Once the last
// one has ended, the stop of the service begins. If one runs on, it is withdrawn. Stop reports whether
// there was a hold.
func (u *UnitStops) Stop(ctx context.Context, s UnitStop, id string, grace time.Duration, running map[string]time.Time, stop func() error) (held bool, err error) {
	if holdFor, last := u.begin(s.Name, id, grace, running); last {
		u.hold(s.Name, s.Hold(ctx, holdFor))
	}
	err = stop()
	held, end := u.finish(s.Name, id, err == nil)
	if end != nil {
		end()
	}
	return held, err
}

// begin notes that a container is stopped now. If no other container continues running, it returns how
// long those that are ending may take, and true.
func (u *UnitStops) begin(unit, id string, grace time.Duration, running map[string]time.Time) (holdFor time.Duration, last bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.byUnit == nil {
		u.byUnit = map[string]*unitEnds{}
	}
	s := u.byUnit[unit]
	if s == nil {
		s = &unitEnds{asked: map[string]time.Time{}, ending: map[string]time.Time{}, failed: map[string]bool{}}
		u.byUnit[unit] = s
	}
	now := time.Now()
	s.asked[id], s.ending[id] = now, now.Add(grace)
	delete(s.failed, id)
	for other, started := range running {
		if at, asked := s.asked[other]; !asked || started.After(at) {
			return 0, false
		}
	}
	for _, at := range s.ending {
		holdFor = max(holdFor, at.Sub(now))
	}
	return holdFor, s.end == nil
}

// hold notes how to end the hold of a unit's stop.
func (u *UnitStops) hold(unit string, end func(begin bool)) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.byUnit[unit].end = end
}

// finish notes that a stop is over. It reports whether the unit's stop is held, and returns how to end
// the hold with the last stop; nil before that.
func (u *UnitStops) finish(unit, id string, ended bool) (held bool, end func()) {
	u.mu.Lock()
	defer u.mu.Unlock()
	s := u.byUnit[unit]
	delete(s.ending, id)
	if !ended {
		s.failed[id] = true
		delete(s.asked, id)
	}
	switch {
	case len(s.ending) > 0:
		return s.end != nil, nil
	case s.end == nil:
		clear(s.failed) // the next list shows whether they run
		return false, nil
	}
	delete(u.byUnit, unit)
	begin := len(s.failed) == 0
	return true, func() { s.end(begin) }
}
