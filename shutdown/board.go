package shutdown

import "sync"

// board has the guard's Status, which Run's goroutine changes while others read it. It is safe
// for concurrent use. What the status points to is shared, and is replaced, never changed.
type board struct {
	mu     sync.Mutex
	status Status // guarded by mu
}

// get is the status as it is now.
func (b *board) get() Status {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.status
}

// change changes the status, and returns what it was before and is now.
func (b *board) change(change func(*Status)) (before, now Status) {
	b.mu.Lock()
	defer b.mu.Unlock()
	before = b.status
	change(&b.status)
	return before, b.status
}
