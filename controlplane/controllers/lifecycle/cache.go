package lifecycle

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"hostler.io/hostler/controlplane/store"
	"hostler.io/hostler/internal/loop"
)

// Cache has the facts of all Nodes and Leases that decisions need, and when each host last gave a
// sign of life by the monotonic clock. Times in objects come from the clocks of hosts and prove
// nothing.
type Cache struct {
	exact         bool // a Lease's duration counts, also if it is shorter than the grace period
	zoneLabels    []string
	changed       []loop.Signal
	nodes, leases *store.Source

	mu         sync.Mutex // guards the fields below
	hosts      map[string]nodeEntry
	lives      map[string]leaseEntry
	synced     [2]bool // nodes, leases
	unreadable map[string]error
}

// NewCache returns an empty cache. With exact, a host is dead once its Lease's duration is over, also if that is shorter
// than the grace period. The cache sends the signals after each change that can lead to another decision.
func NewCache(exact bool, zoneLabels []string, changed ...loop.Signal) *Cache {
	c := &Cache{
		exact: exact, zoneLabels: zoneLabels, changed: changed,
		hosts: map[string]nodeEntry{}, lives: map[string]leaseEntry{}, unreadable: map[string]error{},
	}
	c.nodes, c.leases = store.NewSource(store.Nodes, nodeFollower{c}), store.NewSource(store.Leases, leaseFollower{c})
	return c
}

// Nodes returns the follower for Nodes.
func (c *Cache) Nodes() store.Follower { return c.nodes }

// Leases returns the follower for Leases.
func (c *Cache) Leases() store.Follower { return c.leases }

// Fresh returns how recent the Nodes and Leases are: see store.Contact.
func (c *Cache) Fresh(contact *store.Contact, now time.Time) (store.Fresh, error) {
	return contact.Fresh(now, c.nodes, c.leases)
}

// Unreadable returns why Nodes and Leases cannot be read, by KIND/NAME.
func (c *Cache) Unreadable() map[string]error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.unreadable)
}

// Clock has the times from which silence of hosts counts, by the monotonic clock.
type Clock struct {
	Now time.Time
	// Since is since when the store has answered and reported changes without a gap. Silence before it
	// does not count.
	Since time.Time
}

// Hosts returns all hosts by name.
//
// suspects are hosts whose Lease has to be read before they count as dead, since their silence has
// lasted long enough: the watch of Leases may be late. The result of the read is passed to Checked.
// Until then the hosts count as alive.
func (c *Cache) Hosts(policy Policy, clock Clock) (hosts []Host, suspects []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	hosts = make([]Host, 0, len(c.hosts))
	for name, n := range c.hosts {
		h, l := n.host, c.lives[name]
		h.ChangedAt, h.Lease = n.changedAt, l.version
		h.DeadAt = c.deadAt(n, l, policy, clock)
		if h.dead(clock.Now) && l.checkedAt.Before(h.DeadAt) {
			suspects = append(suspects, name)
			h.DeadAt = time.Time{}
		}
		hosts = append(hosts, h)
	}
	if len(c.lives) > len(c.hosts) {
		for name := range c.lives {
			c.forget(name)
		}
	}
	slices.SortFunc(hosts, func(a, b Host) int { return strings.Compare(a.Name, b.Name) })
	slices.Sort(suspects)
	return hosts, suspects
}

// Checked records a read of a host's Lease that was requested at a time. lease is nil if there is
// none, or if it is unreadable. If the watch has reported the Lease since the request, it may know more
// than the answer. Then the answer counts only if it has the same renewal, so there was none before the request.
func (c *Cache) Checked(name string, asked time.Time, lease *coordinationv1.Lease, unreadable error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.send()
	l := c.lives[name]
	late := !asked.After(l.reportedAt)
	switch {
	case late && l.present && l.renewal == renewalOf(lease, unreadable): // a host may write its Lease again and again
	case late:
		return
	case unreadable != nil:
		c.recordUnreadable(name, unreadable, time.Time{})
	case lease != nil:
		c.renew(lease, time.Time{}) // the store may have been away since it was read
	default:
		c.end(name)
	}
	l = c.lives[name]
	l.checkedAt = asked
	c.lives[name] = l
	c.forget(name)
}

// Recheck requires another read of a host's Lease before it counts as dead.
func (c *Cache) Recheck(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l, known := c.lives[name]; known {
		l.checkedAt = time.Time{}
		c.lives[name] = l
	}
	c.send()
}

// Alive reports whether a host has given a sign of life since a moment. It does not take the Ready of its
// Node for one, which may have been stored before that. idle reports whether its Lease says that it does not reboot.
func (c *Cache) Alive(name string, uid types.UID, since time.Time) (alive, idle bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, known := c.hosts[name]
	if !known || n.host.UID != uid {
		return false, false
	}
	lease := c.lives[name]
	renewed := !lease.heardAt.Before(since)
	alive = renewed || !n.heardAt.Before(since)
	return alive, alive && (renewed || !lease.present) && !lease.rebooting
}

// unready returns the Nodes that are not ready, in no order, but no Node without a status.
func (c *Cache) unready() []Host {
	c.mu.Lock()
	defer c.mu.Unlock()
	var hosts []Host
	for _, n := range c.hosts {
		if ready := n.host.Conditions.Ready; ready == corev1.ConditionFalse || ready == corev1.ConditionUnknown {
			hosts = append(hosts, n.host)
		}
	}
	return hosts
}

// send sends the signals that something has changed.
func (c *Cache) send() {
	for _, s := range c.changed {
		s.Send()
	}
}
