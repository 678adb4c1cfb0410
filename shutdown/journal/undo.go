package journal

import (
	"slices"
	"time"
)

// Held has what an automatic drain keeps stopped until it is undone: the containers that it stopped,
// the restarts that were pending when it began, and the units that it stopped because they run a
// container.
type Held struct {
	Drain    time.Time `json:"drain"` // start of the drain
	Trigger  Trigger   `json:"trigger"`
	Restarts []Restart `json:"restarts,omitempty"`
	Units    []string  `json:"units,omitempty"`
}

// held returns what the drain with this start time holds; nil if it holds nothing.
func (f content) held(drain time.Time) *Held {
	if f.Held != nil {
		for _, h := range *f.Held {
			if h.Drain.Equal(drain) {
				return &h
			}
		}
	}
	return nil
}

// hold replaces what a drain holds.
func (f *content) hold(h Held) {
	list := f.withoutHeld(h.Drain)
	if len(h.Restarts)+len(h.Units) > 0 {
		list = append(list, h)
	}
	if f.Held = nil; len(list) > 0 {
		f.Held = &list
	}
}

// withoutHeld returns what the other drains hold.
func (f content) withoutHeld(drain time.Time) []Held {
	if f.Held == nil {
		return nil
	}
	// A copy, because published values must not be modified.
	return slices.DeleteFunc(slices.Clone(*f.Held), func(h Held) bool { return h.Drain.Equal(drain) })
}

// BeginDrain records the start of a drain after which the host keeps running. It ends the pending
// restarts, because the drain wants the containers stopped: an automatic drain holds them until it is
// undone. After a drain by a user they stay stopped, and so do those that automatic drains hold. It
// does not change restarts for whose priority skip returns true.
func (j *Journal) BeginDrain(r *Record, skip func(priority int32) bool) {
	if !r.Trigger.ByHost() {
		j.WaiveRestarts("an operator drained the host", skip)
	}
	j.change(true, func(f *content) bool {
		if !r.Trigger.ByHost() {
			changed := f.Held != nil
			f.Held = nil
			return changed
		}
		if d := f.Drained; d != nil && d.StartedAt.Equal(r.StartedAt) && !d.UndoneAt.IsZero() { // it is continued
			f.Drained = d.Clone()
			f.Drained.UndoneAt = time.Time{}
		}
		if f.Restarts == nil {
			return false
		}
		var pending, rest []Restart
		for _, o := range *f.Restarts {
			if o.Outcome == "" && !skip(o.Priority) {
				pending = append(pending, o)
			} else {
				rest = append(rest, o)
			}
		}
		if len(pending) == 0 {
			return false
		}
		if f.Restarts = nil; len(rest) > 0 {
			f.Restarts = &rest
		}
		f.holdAlso(r, pending, nil)
		return true
	})
}

// holdAlso adds to what an automatic drain holds. A restart replaces an earlier one of the same
// container.
func (f *content) holdAlso(r *Record, restarts []Restart, units []string) {
	h := Held{Drain: r.StartedAt, Trigger: r.Trigger}
	if before := f.held(r.StartedAt); before != nil {
		h = *before
	}
	h.Restarts = merged(h.Restarts, restarts)
	h.Units = slices.Clone(h.Units)
	for _, name := range units {
		if !slices.Contains(h.Units, name) {
			h.Units = append(h.Units, name)
		}
	}
	f.hold(h)
}

// merged returns the restarts of both lists, one for each container. A restart of more replaces the other one
// if its stop was later. It also replaces one with an outcome if its stop was earlier: the clock may have been
// set back.
func merged(list, more []Restart) []Restart {
	type container struct{ runtime, id string }
	list, at := slices.Clone(list), map[container]int{}
	for i, o := range list {
		at[container{o.Runtime, o.ID}] = i
	}
	for _, o := range more {
		switch i, known := at[container{o.Runtime, o.ID}]; {
		case !known:
			at[container{o.Runtime, o.ID}] = len(list)
			list = append(list, o)
		case o.AskedAt.After(list[i].AskedAt), list[i].Outcome != "" && !o.AskedAt.Equal(list[i].AskedAt):
			list[i] = o
		}
	}
	return list
}

// stopped returns the restarts of the containers that an automatic drain has stopped.
func (r *Record) stopped() (list []Restart) {
	for _, p := range r.Pods {
		list = addPending(list, p, true)
	}
	for i := range list {
		list[i].Drained = true
	}
	return list
}

// HoldUnits records units before an automatic drain stops them, so that it can be undone.
func (j *Journal) HoldUnits(r *Record, names []string) {
	j.change(true, func(f *content) bool {
		f.holdAlso(r, nil, names)
		return len(names) > 0
	})
}

// UndoDrain makes pending again what the automatic drain with this start time holds. It returns
// whether there was such a drain. It is idempotent.
func (j *Journal) UndoDrain(startedAt time.Time) (undone bool) {
	j.change(true, func(f *content) bool {
		changed := f.release(startedAt)
		last := f.Drained != nil && f.Drained.StartedAt.Equal(startedAt)
		undone = changed || last
		if !last || !f.Drained.UndoneAt.IsZero() {
			return changed
		}
		r := f.Drained.Clone()
		r.UndoneAt = time.Now()
		if r.CancelledAt.IsZero() && (r.FinishedAt.IsZero() || SameBoot(r.BootID, f.BootID)) { // otherwise it has done what it was for
			r.CancelledAt = r.UndoneAt
		}
		f.Drained = r
		return true
	})
	return undone
}

// UndoDrains undoes all drains with this trigger.
func (j *Journal) UndoDrains(t Trigger) {
	j.mu.Lock()
	held := j.file.Held
	j.mu.Unlock()
	if held == nil {
		return
	}
	for _, h := range *held {
		if h.Trigger == t {
			j.UndoDrain(h.Drain)
		}
	}
}

// HeldRestarts returns the restarts that are pending once automatic drains are undone.
func (j *Journal) HeldRestarts() (list []Restart) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.file.Held != nil {
		for _, h := range *j.file.Held {
			list = append(list, h.Restarts...)
		}
	}
	return list
}

// release makes pending again what a drain holds. It returns whether there was anything.
func (f *content) release(drain time.Time) bool {
	h := f.held(drain)
	if h == nil {
		return false
	}
	f.hold(Held{Drain: drain})
	var restarts []Restart
	if f.Restarts != nil {
		restarts = *f.Restarts
	}
	if restarts = merged(restarts, h.Restarts); len(restarts) > 0 {
		f.Restarts = &restarts
	}
	var units []Service
	if f.Services != nil {
		units = slices.Clone(*f.Services)
	}
	for _, name := range h.Units {
		if !slices.ContainsFunc(units, func(s Service) bool { return s.Name == name }) {
			units = append(units, Service{Name: name, AskedAt: time.Now(), InTurn: true})
		}
	}
	if len(units) > 0 {
		f.Services = &units
	}
	return true
}

// heldAfterBoot returns what drains for a reboot hold: they are undone after the boot. Other automatic drains
// are not undone. What an unfinished one holds is pending. What a finished one holds stays stopped. Units are
// dropped, because systemd decides which units start at a boot.
func (f *content) heldAfterBoot() (held *[]Held, pending []Restart) {
	if f.Held == nil {
		return nil, nil
	}
	var list []Held
	for _, h := range *f.Held {
		h.Units, h.Restarts = nil, slices.Clone(h.Restarts)
		for i := range h.Restarts {
			h.Restarts[i].HostLived = false
		}
		done := f.Drained != nil && f.Drained.StartedAt.Equal(h.Drain) && f.Drained.Graceful
		switch {
		case h.Trigger == TriggerReboot && time.Since(h.Drain).Abs() < keepEarlier && len(h.Restarts) > 0:
			list = append(list, h)
		case h.Trigger != TriggerReboot && !done:
			pending = merged(pending, h.Restarts)
		}
	}
	if len(list) > 0 {
		held = &list
	}
	return held, pending
}

// Reopened returns a copy of an interrupted or incomplete record that a drain can continue. The
// drain stops pods again that still ran.
func (r *Record) Reopened() *Record {
	c := r.Clone()
	c.FinishedAt, c.CancelledAt, c.UndoneAt, c.EndUnknown, c.Graceful, c.Error = time.Time{}, time.Time{}, time.Time{}, false, false, ""
	c.Pods = slices.DeleteFunc(c.Pods, func(p PodRecord) bool { return p.StartedAt.IsZero() && p.Outcome != Stopped })
	for i := range c.Pods {
		if p := &c.Pods[i]; p.Outcome == Left {
			p.Outcome, p.Error, p.Stuck, p.FinishedAt = "", "", nil, time.Time{}
		}
	}
	return c
}
