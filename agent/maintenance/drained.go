package maintenance

import (
	"context"
	"maps"
	"sync"
	"time"

	"hostler.io/hostler/internal/bounded"
	"hostler.io/hostler/shutdown/journal"
)

// keepDrained is how long the containers of drained pods are kept at least. Only a user starts them
// again, and may have other work to do first.
const keepDrained = 24 * time.Hour

// Store persists the drained pods: a *statefile.File.
type Store interface {
	// Load reads the saved value, if there is one.
	Load(into any)
	// Unread reports whether Load could not read a value that may be intact.
	Unread() bool
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
	store   Store
	loading *bounded.Serial // reads the store

	mu   sync.Mutex
	pods map[string]DrainedPod // by runtime and ID
}

// OpenDrained loads the stored pods.
func OpenDrained(store Store) *Drained {
	d := &Drained{store: store, pods: map[string]DrainedPod{}}
	d.loading = bounded.NewSerial(d.load)
	_ = d.load() // no error
	return d
}

// load adds the stored pods to those that were recorded while they could not be read.
func (d *Drained) load() error {
	var stored map[string]DrainedPod
	d.store.Load(&stored)
	d.mu.Lock()
	defer d.mu.Unlock()
	unsaved := len(d.pods) > 0
	for id, p := range stored {
		if _, newer := d.pods[id]; !newer {
			d.pods[id] = p
		}
	}
	if unsaved {
		d.save()
	}
	return nil
}

// Unread reports whether the stored pods cannot be read, so that Kept may lack some. It tries again,
// for a bounded time.
func (d *Drained) Unread() bool {
	if !d.store.Unread() {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), diskTimeout)
	defer cancel()
	_ = d.loading.Call(ctx) // the store logs the error
	return d.store.Unread()
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
	d.save()
}

// save stores the pods. A file that may be intact is read first: a write would replace it. The caller holds mu.
func (d *Drained) save() {
	if !d.store.Unread() {
		d.store.Save(d.snapshot)
	}
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
