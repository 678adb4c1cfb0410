package store

import (
	"context"
	"sync"
	"time"

	"hostler.io/hostler/internal/bounded"
)

const (
	pingInterval = time.Second
	pingTimeout  = 2 * time.Second
	// longestGap is how long the store may be silent before its silence counts: a Lease that ended
	// meanwhile may belong to a host that could not renew it either.
	longestGap = 4 * time.Second
)

// Contact knows since when the store has answered without a gap, by the monotonic clock.
type Contact struct {
	mu          sync.Mutex // guards what follows
	since, last time.Time
	lost        bool // there was a gap
}

// Answered reports an answer of the store.
func (c *Contact) Answered(at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last.IsZero() || at.Sub(c.last) > longestGap {
		c.since, c.lost = at, !c.last.IsZero()
	}
	c.last = at
}

// Since returns since when the store has answered; false if it does not answer now.
func (c *Contact) Since(now time.Time) (time.Time, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.since, !c.last.IsZero() && now.Sub(c.last) <= longestGap
}

// Regained returns when the store answered again after the last gap; zero if there was none since the
// start.
func (c *Contact) Regained() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.lost {
		return time.Time{}
	}
	return c.since
}

// Run pings the store until ctx ends. beat receives each result.
func (c *Contact) Run(ctx context.Context, ping func(context.Context) error, beat func(error)) error {
	for {
		pinging, cancel := context.WithTimeout(ctx, pingTimeout)
		err := ping(pinging)
		cancel()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err == nil {
			c.Answered(time.Now())
		}
		beat(err)
		if err := bounded.Sleep(ctx, pingInterval); err != nil {
			return err
		}
	}
}
