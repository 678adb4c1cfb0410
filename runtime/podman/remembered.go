package podman

import (
	"context"
	"sync"
	"time"
)

const (
	// cacheTime is how long an answer is believed while nothing happens, for what no folder
	// reports: a new name, a pause.
	cacheTime = 10 * time.Minute
	// reinspectAfter is how old facts of a container may be: no folder shows `podman update
	// --restart`. It is less than believed, so that each new list has current facts.
	reinspectAfter = cacheTime / 2
	// settling is how long after something has happened no answer is remembered: what is
	// written into a folder, such as that a container starts, Podman itself may not have
	// noted yet.
	settling = 5 * time.Second
)

// changes counts what has happened in Podman, while somebody watches.
type changes struct {
	settling time.Duration

	mu      sync.Mutex
	watched int       // Watches that see everything
	count   uint64    // of what happened
	last    time.Time // that something did
}

// note takes in that something happened.
func (c *changes) note() { c.watch(0) }

// watch takes in that a Watch sees everything from now on, or no more.
func (c *changes) watch(more int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watched += more
	c.count++
	c.last = time.Now()
}

// seen is how much has happened, whether all of it was noticed, and whether it has
// settled.
func (c *changes) seen() (count uint64, all, settled bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.count, c.watched > 0, time.Since(c.last) >= c.settling
}

// remembered is an answer of Podman's, as of a count of changes.
type remembered[T any] struct {
	mu    sync.Mutex
	value T
	at    time.Time // zero if there is none
	count uint64
}

// get returns the cached answer if nothing has changed since, otherwise the result of ask.
func (m *remembered[T]) get(ctx context.Context, c *changes, ask func(context.Context) (T, error)) (T, error) {
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
