package shutdown

import "sync"

// Board has the last published Status of a Guard. It is safe for concurrent use, and its zero value
// is ready. Records in the status are shared; they are replaced, never changed.
type Board struct {
	mu     sync.Mutex
	status Status // guarded by mu
}

// Status returns the status: zero before the Guard is made.
func (b *Board) Status() Status {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.status
}

// publish replaces the status.
func (b *Board) publish(s Status) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.status = s
}
