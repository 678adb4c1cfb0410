package lifecycle

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"hostler.io/hostler/controlplane/store"
	"hostler.io/hostler/internal/loop"
)

// Name is the controller's name in the configuration, in elections and in metrics.
const Name = "node-lifecycle"

const (
	calls       = 16               // concurrent calls to the store
	callTimeout = 10 * time.Second // of one call
	// spacing is the shortest time from one decision to the next: of 10,000 Nodes one takes a few
	// milliseconds.
	spacing = 100 * time.Millisecond
	// settle is how long the cache may take to show a write.
	settle = 10 * time.Second
	// firstRetry and lastRetry bound how long a Node waits after a write that failed.
	firstRetry, lastRetry = time.Second, time.Minute
)

// Controller executes decisions while it leads. Its cache is filled on every replica, so that a new
// leader need not read the fleet first.
type Controller struct {
	store   store.Store
	cache   *Cache
	contact *store.Contact
	changed loop.Signal
	log     *slog.Logger

	leads chan *leadership

	mu     sync.Mutex // guards what follows
	policy Policy
	report Report
}

// Report is what the controller does, for people and metrics. It does not change.
type Report struct {
	Decision   Decision
	At         time.Time        // of the decision; zero before the first
	Paused     string           // why there is no decision; empty if there is one
	OldestDue  time.Time        // since when the oldest change is due that is not stored yet; zero if there is none
	Failing    map[string]error // why Nodes cannot be written, by name
	Unreadable map[string]error // why objects cannot be read, by KIND/NAME
	Writes     Writes
}

// Writes counts writes by their result since the start.
type Writes struct{ Stored, Conflict, Failed uint64 }

// New returns a controller for the Nodes of a store.
func New(s store.Store, contact *store.Contact, policy Policy, zoneLabels []string, log *slog.Logger) *Controller {
	changed := loop.NewSignal()
	return &Controller{
		store: s, contact: contact, changed: changed, policy: policy, log: log.With("component", Name), leads: make(chan *leadership),
		cache: NewCache(s.EndsLeases(), zoneLabels, changed),
	}
}

// SetPolicy takes over a changed configuration.
func (c *Controller) SetPolicy(policy Policy) {
	c.mu.Lock()
	c.policy = policy
	c.mu.Unlock()
	c.changed.Send()
}

func (c *Controller) currentPolicy() Policy {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.policy
}

// Report returns the last decision, and how its execution goes. A replica that does not lead decides as
// well, and executes nothing.
func (c *Controller) Report() Report {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.report
}

// FollowNodes fills the cache until ctx ends or the store is lost. heartbeat is called with each list.
func (c *Controller) FollowNodes(ctx context.Context, heartbeat func(error)) error {
	return c.store.Follow(ctx, store.Nodes, store.AllChanges, listed{c.cache.Nodes(), heartbeat})
}

// FollowLeases does so with the Leases: those that end are enough where the store ends them.
func (c *Controller) FollowLeases(ctx context.Context, heartbeat func(error)) error {
	scope := store.AllChanges
	if c.store.EndsLeases() {
		scope = store.Deletions
	}
	return c.store.Follow(ctx, store.Leases, scope, listed{c.cache.Leases(), heartbeat})
}

// listed is a follower that reports each list that was read.
type listed struct {
	store.Follower
	heartbeat func(error)
}

// Synced implements store.Follower.
func (l listed) Synced() {
	l.Follower.Synced()
	l.heartbeat(nil)
}
