package podman

import "time"

// WatchExits replaces the folder Exits, and sets settling to 0.
func (r *Runtime) WatchExits(folder string) { r.exits, r.changes.settling = folder, 0 }

// Age makes all facts about containers older.
func (r *Runtime) Age(by time.Duration) {
	r.facts.mu.Lock()
	defer r.facts.mu.Unlock()
	for id, f := range r.facts.byID {
		f.askedAt = f.askedAt.Add(-by)
		r.facts.byID[id] = f
	}
}
