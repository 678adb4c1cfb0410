package local

import (
	"context"
	"sync"
	"time"
)

// UnitStops are the services whose containers are being stopped. While a service's last containers
// end, the stop of the service is held. It is safe for concurrent use.
type UnitStops struct {
	mu     sync.Mutex
	byUnit map[string]*unitEnds
}

// unitEnds records the stops of one service's containers, by container ID.
type unitEnds struct {
	asked  map[string]time.Time // when the stop was requested
	ending map[string]time.Time // when the grace ends; only containers that have not ended
	failed map[string]bool      // containers that survived their stop
	end    func(begin bool)     // ends the hold; nil if there is none
}

// Stop calls stop to stop a container of a service. running are the start times of the service's
// containers in the last list, by ID. If all of them are being stopped, it also holds the stop of
// the service until the last one has ended, and then lets it begin. If one survives, it cancels the
// stop of the service. held reports whether there was a hold.
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

// begin records that a container is being stopped. If no other container keeps running, it returns
// true and how long the containers may take to end.
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

// hold stores the function that ends the hold of a unit's stop.
func (u *UnitStops) hold(unit string, end func(begin bool)) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.byUnit[unit].end = end
}

// finish records that the stop of a container is over. held reports whether the unit's stop is
// held. After the last stop, end ends the hold; before, it is nil.
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
