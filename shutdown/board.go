package shutdown

import "sync"

// Board holds the Status of a Guard, which Run's goroutine changes while others read it. It is safe
// for concurrent use, and its zero value is ready. What the status points to is shared, and is
// replaced, never changed.
type Board struct {
	mu     sync.Mutex
	status Status // guarded by mu
}

// Status returns the status as it is now: zero before the Guard is made.
func (b *Board) Status() Status {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.status
}

// change changes the status, and returns what it was before and is now.
func (b *Board) change(change func(*Status)) (before, now Status) {
	b.mu.Lock()
	defer b.mu.Unlock()
	before = b.status
	change(&b.status)
	return before, b.status
}
