package podman

import "time"

// WatchExits has r watch another folder than Exits, and wait for nothing to settle.
func (r *Runtime) WatchExits(folder string) { r.exits, r.changes.settling = folder, 0 }

// Age makes all that r knows of containers older.
func (r *Runtime) Age(by time.Duration) {
	r.facts.mu.Lock()
	defer r.facts.mu.Unlock()
	for id, f := range r.facts.byID {
		f.askedAt = f.askedAt.Add(-by)
		r.facts.byID[id] = f
	}
}
