package shutdown

import "sync"

// Board has the Status that a Guard published last. It is safe for concurrent use, and its zero
// value is ready. What the status points to is shared, and is replaced, never changed.
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

// publish makes a status the one that is read from now on.
func (b *Board) publish(s Status) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.status = s
}
