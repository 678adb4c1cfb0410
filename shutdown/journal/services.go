package journal

import (
	"slices"
	"time"
)

// PendingServices are the services that drains of this boot have asked to stop and that were not started
// again since, also if they were cancelled or their story has ended, and units that they
// stopped for a container of them.
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

// NoteStarted records that a service is started again.
func (j *Journal) NoteStarted(name string, at time.Time) {
	j.change(true, func(f *content) bool {
		pending := f.services()
		if pending == nil {
			return false
		}
		if f.Record != nil {
			f.Record = f.Record.Clone() // what was handed out stays as it is
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

// AddPendingUnit records a unit before it is stopped for one of its containers, so that it is started
// again. It does nothing without a shutdown.
func (j *Journal) AddPendingUnit(name string, at time.Time) {
	j.change(true, func(f *content) bool {
		if f.Record == nil || !f.Record.CancelledAt.IsZero() {
			return false
		}
		var pending []Service
		if f.Services != nil {
			pending = slices.Clone(*f.Services) // what was handed out stays as it is
		}
		if slices.ContainsFunc(pending, func(s Service) bool { return s.Name == name }) {
			return false
		}
		pending = append(pending, Service{Name: name, AskedAt: at, InTurn: true})
		f.Services = &pending
		return true
	})
}

// WaiveUnits takes units off the record that were stopped for a container of them: a person
// wants these stopped.
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
