package lifecycle

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controllers/executor"
	"hostler.io/hostler/controlplane/store"
	"hostler.io/hostler/internal/loop"
)

const (
	checkCalls   = 16 // concurrent reads
	checkTimeout = 10 * time.Second
)

// checks reads the Leases of hosts that may be dead, and writes the results to the cache.
type checks struct {
	store   store.Store
	cache   *Cache
	changed loop.Signal
	log     *slog.Logger

	mu      sync.Mutex // guards the fields below
	ctx     context.Context
	reading sync.WaitGroup
	hosts   map[string]check
}

// check is the state of the read for one host.
type check struct {
	running bool
	until   time.Time // no read before this time
	retry   executor.Backoff
	err     error
}

func newChecks(s store.Store, cache *Cache, changed loop.Signal, log *slog.Logger) *checks {
	return &checks{store: s, cache: cache, changed: changed, log: log, hosts: map[string]check{}}
}

// start allows reads until ctx ends. The returned function waits for reads in progress.
func (c *checks) start(ctx context.Context) (wait func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ctx = ctx
	return c.reading.Wait
}

// read starts reads of the Leases of those hosts, except reads that are in progress or have just
// failed. It forgets hosts that are not in the list any more.
func (c *checks) read(suspects []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	hosts, due := make(map[string]check, len(suspects)), []string(nil)
	for _, name := range suspects {
		h := c.hosts[name]
		if !h.running && !now.Before(h.until) {
			h.running = true
			due = append(due, name)
		}
		hosts[name] = h
	}
	for name, h := range c.hosts {
		if h.running {
			hosts[name] = h
		}
	}
	c.hosts = hosts
	if len(due) > 0 {
		ctx := c.ctx
		c.reading.Go(func() { c.readAll(ctx, due) })
	}
}

// readAll reads Leases, several at a time, and waits for the reads.
func (c *checks) readAll(ctx context.Context, names []string) {
	var group errgroup.Group
	group.SetLimit(checkCalls)
	for _, name := range names {
		group.Go(func() error {
			c.finish(name, c.readOne(ctx, name), ctx.Err() != nil)
			return nil
		})
	}
	_ = group.Wait() // its functions return no error
}

// readOne reads the Lease of a host, and writes the result to the cache.
func (c *checks) readOne(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, checkTimeout, controlplane.ErrNoAnswer)
	defer cancel()
	asked := time.Now()
	object, err := c.store.Get(ctx, store.Leases, name)
	lease, _ := object.(*coordinationv1.Lease)
	switch {
	case err == nil:
		c.cache.Checked(name, asked, lease, nil)
	case errors.Is(err, controlplane.ErrNotFound):
		c.cache.Checked(name, asked, nil, nil)
	case errors.Is(err, store.ErrUnreadable):
		c.cache.Checked(name, asked, nil, err)
	default:
		return err
	}
	return nil
}

// finish records the result of a read.
func (c *checks) finish(name string, err error, stopped bool) {
	c.mu.Lock()
	before := c.hosts[name]
	h := check{}
	if err != nil && !stopped {
		h.err, h.retry = err, before.retry.Next()
		h.until = time.Now().Add(h.retry.Pause())
		if before.err == nil {
			c.log.Warn("cannot read lease, retrying", "node", name, "error", err)
		}
	}
	c.hosts[name] = h
	c.mu.Unlock()
	c.changed.Send()
}

// unchecked reports whether one of those hosts has not been checked yet. A host whose Lease cannot be
// read does not count: it must not delay decisions about others.
func (c *checks) unchecked(suspects []string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range suspects {
		if c.hosts[name].err == nil {
			return true
		}
	}
	return false
}

// failing returns why Leases cannot be read, by the name of the Node's object.
func (c *checks) failing() map[string]error {
	c.mu.Lock()
	defer c.mu.Unlock()
	failing := map[string]error{}
	for name, h := range c.hosts {
		if h.err != nil {
			failing[store.Nodes.Key(name)] = h.err
		}
	}
	return failing
}
