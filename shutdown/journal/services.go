package journal

import (
	"slices"
	"time"
)

// Owed are the services that drains of this boot have asked to stop and that were not started
// again since, also if they were called off or their story has ended.
func (j *Journal) Owed() []Service {
	j.mu.Lock()
	defer j.mu.Unlock()
	if services := j.file.services(); services != nil {
		return *services
	}
	return nil
}

// services are those that are to be started again; nil if none are.
func (f content) services() *[]Service {
	var owed []Service
	if f.Services != nil {
		owed = slices.Clone(*f.Services)
	}
	if f.Record != nil {
		for _, s := range f.Record.StoppedFirst {
			owed = slices.DeleteFunc(owed, func(o Service) bool { return o.Name == s.Name })
			if s.StartedAt.IsZero() && !s.AskedAt.IsZero() {
				owed = append(owed, s)
			}
		}
	}
	if len(owed) == 0 {
		return nil
	}
	return &owed
}

// NoteStarted records that a service is started again.
func (j *Journal) NoteStarted(name string, at time.Time) {
	j.change(true, func(f *content) bool {
		owed := f.services()
		if owed == nil {
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
		if rest := slices.DeleteFunc(*owed, func(s Service) bool { return s.Name == name }); len(rest) > 0 {
			f.Services = &rest
		}
		return true
	})
}
