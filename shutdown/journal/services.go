package journal

import (
	"slices"
	"time"
)

// Owed are the services that the drain of this boot has asked to stop and that were not
// started again since, also if it was called off.
func (j *Journal) Owed() (owed []Service) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.file.Record == nil {
		return nil
	}
	for _, s := range j.file.Record.StoppedFirst {
		if s.StartedAt.IsZero() && !s.AskedAt.IsZero() {
			owed = append(owed, s)
		}
	}
	return owed
}

// NoteStarted records that a service is started again.
func (j *Journal) NoteStarted(name string, at time.Time) {
	j.change(true, func(f *content) bool {
		if f.Record == nil {
			return false
		}
		i := slices.IndexFunc(f.Record.StoppedFirst, func(s Service) bool { return s.Name == name })
		if i < 0 {
			return false
		}
		f.Record = f.Record.Clone() // what was handed out stays as it is
		f.Record.StoppedFirst[i].StartedAt = at
		return true
	})
}
