package journal

import (
	"slices"
	"time"
)

// PendingServices returns the services to start again: those that drains of this boot stopped
// before the pods, even if the drain was cancelled or settled. It also returns units that drains
// stopped because they run a container.
func (j *Journal) PendingServices() []Service {
	j.mu.Lock()
	defer j.mu.Unlock()
	if services := j.file.services(); services != nil {
		return *services
	}
	return nil
}

// services returns the services to start again; nil without any.
func (f content) services() *[]Service {
	var pending []Service
	if f.Services != nil {
		pending = slices.Clone(*f.Services)
	}
	if f.Record != nil {
		for _, s := range f.Record.StoppedFirst {
			pending = slices.DeleteFunc(pending, func(o Service) bool { return o.Name == s.Name })
			if s.StartedAt.IsZero() && !s.AskedAt.IsZero() {
				pending = append(pending, s)
			}
		}
	}
	if len(pending) == 0 {
		return nil
	}
	return &pending
}

// NoteStarted records that a service was started again.
func (j *Journal) NoteStarted(name string, at time.Time) {
	j.change(true, func(f *content) bool {
		pending := f.services()
		if pending == nil {
			return false
		}
		if f.Record != nil {
			f.Record = f.Record.Clone() // published records must not be modified
			for i := range f.Record.StoppedFirst {
				if s := &f.Record.StoppedFirst[i]; s.Name == name {
					s.StartedAt = at
				}
			}
		}
		f.Services = nil
		if rest := slices.DeleteFunc(*pending, func(s Service) bool { return s.Name == name }); len(rest) > 0 {
			f.Services = &rest
		}
		return true
	})
}

// AddPendingUnit records a unit before it is stopped because it runs a container, so that it is
// started again. It does nothing if no shutdown is recorded.
func (j *Journal) AddPendingUnit(name string, at time.Time) {
	j.change(true, func(f *content) bool {
		if f.Record == nil || !f.Record.CancelledAt.IsZero() {
			return false
		}
		var pending []Service
		if f.Services != nil {
			pending = slices.Clone(*f.Services) // published values must not be modified
		}
		if slices.ContainsFunc(pending, func(s Service) bool { return s.Name == name }) {
			return false
		}
		pending = append(pending, Service{Name: name, AskedAt: at, InTurn: true})
		f.Services = &pending
		return true
	})
}

// WaiveUnits removes units that were stopped because they run a container, so that they stay
// stopped, as a user requested.
func (j *Journal) WaiveUnits(waived func(name string) bool) {
	j.change(true, func(f *content) bool {
		if f.Services == nil {
			return false
		}
		rest := slices.DeleteFunc(slices.Clone(*f.Services), func(s Service) bool { return s.InTurn && waived(s.Name) })
		if len(rest) == len(*f.Services) {
			return false
		}
		if f.Services = &rest; len(rest) == 0 {
			f.Services = nil
		}
		return true
	})
}
