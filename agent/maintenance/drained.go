package maintenance

import (
	"maps"
	"sync"
	"time"

	"hostler.io/hostler/shutdown/journal"
)

// keepDrained is how long what a drain has stopped is kept at least: nobody but a person
// starts it again, who may have more to do first.
const keepDrained = 24 * time.Hour

// Store keeps the drained pods: a *statefile.File.
type Store interface {
	// Load reads what was saved last, if there is any.
	Load(into any)
	// Save has written what snapshot returns later.
	Save(snapshot func() any)
}

// DrainedPod is one that a person's drain has stopped.
type DrainedPod struct {
	Runtime   string    `json:"runtime"`
	ID        string    `json:"id"`
	UID       string    `json:"uid,omitempty"`
	StoppedAt time.Time `json:"stoppedAt"`
}

// Drained knows what drains have stopped, across restarts and boots. It is safe for
// concurrent use.
type Drained struct {
	store Store

	mu   sync.Mutex
	pods map[string]DrainedPod // by runtime and ID
}

// OpenDrained reads what is kept.
func OpenDrained(store Store) *Drained {
	d := &Drained{store: store}
	store.Load(&d.pods)
	if d.pods == nil {
		d.pods = map[string]DrainedPod{}
	}
	return d
}

// Take takes in how a drain stands.
func (d *Drained) Take(r *journal.Record, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	changed := false
	for _, p := range r.Pods {
		id := p.Runtime + "/" + p.ID
		if p.StartedAt.IsZero() || d.pods[id].StoppedAt.Equal(p.StartedAt) {
			continue // it was not sent the stop signal, or is known
		}
		d.pods[id] = DrainedPod{Runtime: p.Runtime, ID: p.ID, UID: p.UID, StoppedAt: p.StartedAt}
		changed = true
	}
	if !changed {
		return
	}
	maps.DeleteFunc(d.pods, func(_ string, p DrainedPod) bool { return !p.kept(now) })
	d.store.Save(d.snapshot)
}

func (d *Drained) snapshot() any {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.pods)
}

// Kept returns those that are to be kept now.
func (d *Drained) Kept(now time.Time) []DrainedPod {
	d.mu.Lock()
	defer d.mu.Unlock()
	var pods []DrainedPod
	for _, p := range d.pods {
		if p.kept(now) {
			pods = append(pods, p)
		}
	}
	return pods
}

// kept reports whether it is less than a day since. The wall clock may have been set right
// meanwhile, forth or back.
func (p DrainedPod) kept(now time.Time) bool { return now.Sub(p.StoppedAt).Abs() < keepDrained }
