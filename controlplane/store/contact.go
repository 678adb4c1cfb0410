package store

import (
	"context"
	"errors"
	"sync"
	"time"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/internal/bounded"
)

const (
	pingInterval = time.Second
	pingTimeout  = 2 * time.Second
	// longestGap is how long the store may not answer without a consequence. After a longer gap, a
	// Lease that ended meanwhile may belong to a host that could not renew it either.
	longestGap = 5 * time.Second
)

// RestoreJump is by how many revisions a store cannot advance between two pings. `etcdutl snapshot
// restore --bump-revision` does that, so that no client takes an old revision for a newer one.
const RestoreJump = 100_000_000

var (
	// ErrSilent is why no decisions are made while the store does not answer.
	ErrSilent = errors.New("the store does not answer")
	// ErrRefused is why no decisions are made while the store answers that this server may not read
	// it, or rejects its credentials.
	ErrRefused = errors.New("the store refuses this server")
	// ErrRestored is the error of the first Ping after the store went back to an earlier state, such as
	// a backup that was restored.
	ErrRestored = errors.New("the store went back to an earlier state")
)

// Contact records since when the store has answered without a gap, by the monotonic clock.
type Contact struct {
	mu          sync.Mutex // guards the fields below
	since, last time.Time
	earlier     span // of the process before this one
	restoring   bool // the store went back to an earlier state, and has not answered since
	restored    time.Time
	refused     bool // the last answer refused this server
}

// Answered records the answer to a ping that was sent at a time.
func (c *Contact) Answered(at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.last.IsZero():
		c.since = c.earlier.until(at, longestGap)
	case at.Sub(c.last) > longestGap:
		c.since = at
	}
	if c.restoring {
		c.restoring, c.restored = false, at
	}
	c.last, c.refused = at, false
}

// Resume makes the contact of the process before this one count, if the store answers soon enough. That process had
// contact since a moment, and last had an answer.
func (c *Contact) Resume(since, last time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.earlier = span{since, last}
}

// Answer returns the moment of the last request that the store answered; zero if there was none.
func (c *Contact) Answer() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}

// span is a time without a gap. The zero value is none.
type span struct{ since, last time.Time }

// until returns since when there is no gap up to at, if a gap of that length does not count.
func (s span) until(at time.Time, gap time.Duration) time.Time {
	if s.since.IsZero() || at.Sub(s.last) > gap {
		return at
	}
	return s.since
}

// failed records a ping without a usable answer. A store that was restored counts as one that did not
// answer: what was received from it before is not its state any more.
func (c *Contact) failed(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refused = controlplane.Refused(err)
	if errors.Is(err, ErrRestored) && !c.last.IsZero() {
		c.last, c.restoring = c.last.Add(-2*longestGap), true
	}
}

// Since returns since when the store has answered; ErrSilent or ErrRefused if it does not at
// present.
func (c *Contact) Since(now time.Time) (time.Time, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case !c.last.IsZero() && now.Sub(c.last) <= longestGap:
		return c.since, nil
	case c.refused:
		return time.Time{}, ErrRefused
	}
	return time.Time{}, ErrSilent
}

// restoredAt returns when the store answered again after it went back to an earlier state; zero if it
// did not.
func (c *Contact) restoredAt() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.restored
}

// Run pings the store until ctx ends. heartbeat receives each result.
func (c *Contact) Run(ctx context.Context, ping func(context.Context) error, heartbeat func(error)) error {
	for {
		pinging, cancel := context.WithTimeout(ctx, pingTimeout)
		asked := time.Now()
		err := ping(pinging)
		cancel()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err == nil {
			c.Answered(asked)
		} else {
			c.failed(err)
		}
		heartbeat(err)
		if err := bounded.Sleep(ctx, pingInterval); err != nil {
			return err
		}
	}
}
