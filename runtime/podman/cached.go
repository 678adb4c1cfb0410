package podman

import (
	"context"
	"sync"
	"time"
)

const (
	// cacheTime is how long an answer is cached. Some changes, such as a new name or a pause, show
	// in no folder.
	cacheTime = 10 * time.Minute
	// reinspectAfter is the maximum age of a container's facts: no folder shows `podman update
	// --restart`. It is less than cacheTime, so that each new list has current facts.
	reinspectAfter = cacheTime / 2
	// settling is how long after a change no answer is cached. Podman may record a change, such as
	// a start, later than its folders show it.
	settling = 5 * time.Second
)

// changes counts changes in Podman while there is a Watch.
type changes struct {
	settling time.Duration

	mu      sync.Mutex
	watched int       // Watches that see all changes
	count   uint64    // of changes
	last    time.Time // time of the last change
}

// note records a change.
func (c *changes) note() { c.watch(0) }

// watch records that a Watch begins (1) or stops (-1) to see all changes.
func (c *changes) watch(more int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watched += more
	c.count++
	c.last = time.Now()
}

// seen returns the number of changes, whether a Watch sees all of them, and whether the last is
// long enough ago.
func (c *changes) seen() (count uint64, all, settled bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.count, c.watched > 0, time.Since(c.last) >= c.settling
}

// cached caches an answer of Podman at a number of changes.
type cached[T any] struct {
	mu    sync.Mutex
	value T
	at    time.Time // zero if nothing is cached
	count uint64
}

// get returns the cached answer if nothing has changed since, else the result of ask.
func (m *cached[T]) get(ctx context.Context, c *changes, ask func(context.Context) (T, error)) (T, error) {
	count, all, settled := c.seen()
	m.mu.Lock()
	value, fresh := m.value, all && !m.at.IsZero() && m.count == count && time.Since(m.at) < cacheTime
	m.mu.Unlock()
	if fresh {
		return value, nil
	}
	value, err := ask(ctx)
	if err != nil || !settled {
		return value, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.value, m.at, m.count = value, time.Now(), count
	return value, nil
}
