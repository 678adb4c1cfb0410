package maintenance

import (
	"maps"
	"sync"
	"time"

	"hostler.io/hostler/shutdown/journal"
)

// keepDrained is how long the containers of drained pods are kept at least. Only a user starts them
// again, and may have other work to do first.
const keepDrained = 24 * time.Hour

// Store persists the drained pods: a *statefile.File.
type Store interface {
	// Load reads the saved value, if there is one.
	Load(into any)
	// Save calls snapshot later and writes its result.
	Save(snapshot func() any)
}

// DrainedPod is a pod that a manual drain has stopped.
type DrainedPod struct {
	Runtime   string    `json:"runtime"`
	ID        string    `json:"id"`
	UID       string    `json:"uid,omitempty"`
	StoppedAt time.Time `json:"stoppedAt"`
}

// Drained has the pods that drains have stopped. It persists across restarts and boots. It is safe
// for concurrent use.
type Drained struct {
	store Store

	mu   sync.Mutex
	pods map[string]DrainedPod // by runtime and ID
}

// OpenDrained loads the stored pods.
func OpenDrained(store Store) *Drained {
	d := &Drained{store: store}
	store.Load(&d.pods)
	if d.pods == nil {
		d.pods = map[string]DrainedPod{}
	}
	return d
}

// Take records the pods that a running or finished drain has stopped.
func (d *Drained) Take(r *journal.Record, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	changed := false
	for _, p := range r.Pods {
		id := p.Runtime + "/" + p.ID
		if p.StartedAt.IsZero() || d.pods[id].StoppedAt.Equal(p.StartedAt) {
			continue // it was not sent the stop signal, or is already recorded
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

// Kept returns the pods whose containers must be kept now.
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

// kept reports whether the stop was less than a day ago. The difference is absolute, because the
// wall clock may have been changed in either direction.
func (p DrainedPod) kept(now time.Time) bool { return now.Sub(p.StoppedAt).Abs() < keepDrained }
