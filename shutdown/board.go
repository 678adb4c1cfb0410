package shutdown

import "sync"

// Board has the last published Status of a Guard. It is safe for concurrent use. The zero value is
// ready to use. Records in the status are shared: they are replaced, never modified.
type Board struct {
	mu     sync.Mutex
	status Status // guarded by mu
}

// Status returns the published status; zero before the Guard exists.
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
