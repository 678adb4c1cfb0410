package journal

import (
	"cmp"
	"slices"
	"time"
)

// WaivedFor is the reason of restarts that a drain with this cause ends.
func WaivedFor(cause string) string { return cmp.Or(cause, "an operator") + " drained the host" }

// BeginDrain removes the recorded units of an earlier drain that left the host running.
func (j *Journal) BeginDrain() {
	j.change(true, func(f *content) bool {
		changed := f.DrainedUnits != nil
		f.DrainedUnits = nil
		return changed
	})
}

// AddDrainedUnits records units before such a drain stops them, so that it can be undone.
func (j *Journal) AddDrainedUnits(names []string) {
	j.change(true, func(f *content) bool {
		var units []string
		if f.DrainedUnits != nil {
			units = slices.Clone(*f.DrainedUnits) // published values must not be modified
		}
		before := len(units)
		for _, name := range names {
			if !slices.Contains(units, name) {
				units = append(units, name)
			}
		}
		f.DrainedUnits = &units
		return len(units) > before
	})
}

// UndoDrain makes pending again what the drain with this start time stopped, and the restarts that
// it waived. It returns whether there was such a drain.
func (j *Journal) UndoDrain(startedAt time.Time) (undone bool) {
	j.change(true, func(f *content) bool {
		if f.Drained == nil || !f.Drained.StartedAt.Equal(startedAt) {
			return false
		}
		undone = true
		r := f.Drained.Clone()
		if r.CancelledAt.IsZero() {
			r.CancelledAt = time.Now()
			if SameBoot(r.BootID, f.BootID) { // a drain before the boot has done what it was for
				r.FinishedAt, r.Graceful = time.Time{}, false
			}
		}
		f.Drained = r
		f.Restarts, f.Services, f.DrainedUnits = f.undoneRestarts(r), f.undoneUnits(), nil
		return true
	})
	return undone
}

func (f content) undoneRestarts(r *Record) *[]Restart {
	var list []Restart
	if f.Restarts != nil {
		list = slices.Clone(*f.Restarts)
	}
	for i := range list {
		if o := &list[i]; o.Outcome == LeftStopped && o.Reason == WaivedFor(r.Cause) {
			o.Outcome, o.At, o.Reason = "", time.Time{}, ""
		}
	}
	for _, p := range r.Pods {
		for _, restart := range addPending(nil, p, true) {
			restart.Drained = true
			list = append(slices.DeleteFunc(list, restart.same), restart)
		}
	}
	if len(list) == 0 {
		return nil
	}
	return &list
}

func (f content) undoneUnits() *[]Service {
	var pending []Service
	if f.Services != nil {
		pending = slices.Clone(*f.Services)
	}
	if f.DrainedUnits != nil {
		for _, name := range *f.DrainedUnits {
			if !slices.ContainsFunc(pending, func(s Service) bool { return s.Name == name }) {
				pending = append(pending, Service{Name: name, AskedAt: time.Now(), InTurn: true})
			}
		}
	}
	if len(pending) == 0 {
		return nil
	}
	return &pending
}

// Reopened returns a copy of an interrupted or incomplete record that a drain can continue. The
// drain stops pods again that still ran.
func (r *Record) Reopened() *Record {
	c := r.Clone()
	c.FinishedAt, c.CancelledAt, c.EndUnknown, c.Graceful, c.Error = time.Time{}, time.Time{}, false, false, ""
	c.Pods = slices.DeleteFunc(c.Pods, func(p PodRecord) bool { return p.StartedAt.IsZero() && p.Outcome != Stopped })
	for i := range c.Pods {
		if p := &c.Pods[i]; p.Outcome == Left {
			p.Outcome, p.Error, p.Stuck, p.FinishedAt = "", "", nil, time.Time{}
		}
	}
	return c
}
