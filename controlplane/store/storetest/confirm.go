package storetest

import (
	"context"
	"fmt"
	"time"

	"hostler.io/hostler/controlplane/store"
)

// confirmed records when a Follower was confirmed, and which objects it had received before that.
type confirmed struct {
	*follower
	at chan confirmation
}

// confirmation is a call of Confirmed.
type confirmation struct {
	at   time.Time
	seen map[string]string // version by name
}

// Confirmed implements store.Confirmer.
func (c *confirmed) Confirmed(at time.Time) {
	seen := map[string]string{}
	c.mu.Lock()
	for _, call := range c.calls {
		switch call.what {
		case set:
			seen[call.name] = call.object.GetResourceVersion()
		case deleted:
			delete(seen, call.name)
		}
	}
	c.mu.Unlock()
	c.at <- confirmation{at, seen}
}

// until returns the first confirmation of a moment that is not before a time.
func (c *confirmed) until(b *bench, since time.Time) confirmation {
	b.Helper()
	for {
		select {
		case got := <-c.at:
			if !got.at.Before(since) {
				return got
			}
		case <-b.ctx.Done():
			b.Fatalf("no confirmation: %v", context.Cause(b.ctx))
		}
	}
}

// checkConfirmed checks that a confirmation of a moment comes after the changes before that moment,
// also for a kind that does not change.
func checkConfirmed(b *bench) {
	b.put(store.Nodes, newNode("a"))
	began := time.Now()
	c := &confirmed{newFollower(), make(chan confirmation, 1000)}
	b.followTo(store.Nodes, store.AllChanges, c, c.follower)
	if got := c.until(b, began); got.seen["a"] == "" {
		b.Errorf("objects at the first confirmation = %v, want a", got.seen)
	}
	for i := range 2 {
		name := fmt.Sprintf("node-%d", i)
		b.put(store.Nodes, newNode(name))
		if got := c.until(b, time.Now()); got.seen[name] == "" {
			b.Errorf("objects at a confirmation of the moment after the write of %s = %v", name, got.seen)
		}
	}
	b.put(store.Leases, newLease("a", time.Hour)) // the store changes, its Nodes do not
	c.until(b, time.Now())
	b.removed(store.Nodes, "a")
	if got := c.until(b, time.Now()); got.seen["a"] != "" {
		b.Errorf("objects at a confirmation of the moment after the deletion of a = %v", got.seen)
	}
}

// removed deletes an object.
func (b *bench) removed(kind store.Kind, name string) {
	b.Helper()
	if err := b.Store.Delete(b.ctx, kind, name, store.Preconditions{}, ""); err != nil {
		b.Fatalf("Delete(%s) = %v, want no error", kind.Key(name), err)
	}
}
