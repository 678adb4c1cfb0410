package lifecycle

import (
	"maps"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/store"
)

// nodeFollower records Nodes.
type nodeFollower struct{ *Cache }

// Begin implements store.Follower.
func (f nodeFollower) Begin() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for name, n := range f.hosts {
		n.listed = false
		f.hosts[name] = n
	}
	f.clearUnreadable(store.Nodes)
}

// Set implements store.Follower.
func (f nodeFollower) Set(_ string, object store.Object) {
	node := object.(*corev1.Node)
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.unreadable, store.Nodes.Key(node.Name))
	before, known := f.hosts[node.Name]
	now := entryOf(node, f.zoneLabels)
	now.follow(before, known, time.Now(), f.nodes.ConfirmedAt())
	f.hosts[node.Name] = now
	if !known || !before.same(now) {
		f.send()
	}
}

// follow takes over what is known of the earlier state of a Node. The present state was stored after the
// moment confirmed.
func (n *nodeEntry) follow(before nodeEntry, known bool, now, confirmed time.Time) {
	n.listed = true
	if !known || before.host.UID != n.host.UID {
		n.seenAt, n.changedAt, n.reportAt = now, now, now
		return
	}
	n.seenAt, n.changedAt, n.reportAt, n.heardAt = before.seenAt, before.changedAt, before.reportAt, before.heardAt
	if n.host.Conditions.Ready != before.host.Conditions.Ready {
		n.changedAt = now
	}
	if !n.heartbeat.Equal(before.heartbeat) {
		n.reportAt, n.heardAt = now, confirmed
	}
}

// Unreadable implements store.Follower.
func (f nodeFollower) Unreadable(name string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.unreadable[store.Nodes.Key(name)] = err
	f.remove(name)
}

// Delete implements store.Follower.
func (f nodeFollower) Delete(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.unreadable, store.Nodes.Key(name))
	f.remove(name)
	f.send()
}

// remove forgets a Node, and its Lease if that does not exist. The caller has the lock.
func (f nodeFollower) remove(name string) {
	delete(f.hosts, name)
	f.forget(name)
}

// Synced implements store.Follower.
func (f nodeFollower) Synced() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for name, n := range f.hosts {
		if !n.listed {
			f.remove(name)
		}
	}
	f.synced[0] = true
	f.send()
}

// leaseFollower records Leases.
type leaseFollower struct{ *Cache }

// Begin implements store.Follower.
func (f leaseFollower) Begin() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for name, l := range f.lives {
		l.listed = false
		f.lives[name] = l
	}
	f.clearUnreadable(store.Leases)
}

// Set implements store.Follower.
func (f leaseFollower) Set(_ string, object store.Object) {
	f.mu.Lock()
	defer f.mu.Unlock()
	lease := object.(*coordinationv1.Lease)
	f.renew(lease, f.leases.ConfirmedAt())
	f.reported(lease.Name)
}

// reported records that a list or the watch has reported a Lease. The caller has the lock.
func (f leaseFollower) reported(name string) {
	l := f.lives[name]
	l.reportedAt, l.listed = time.Now(), l.present
	f.lives[name] = l
}

// renew records a Lease. If it was renewed, that was after the moment heard; zero if that is not known. The caller has
// the lock.
func (c *Cache) renew(lease *coordinationv1.Lease, heard time.Time) {
	delete(c.unreadable, store.Leases.Key(lease.Name))
	now := c.lives[lease.Name]
	now.version, now.renewal, now.duration = lease.ResourceVersion, renewalOf(lease, nil), durationOf(lease.Spec.LeaseDurationSeconds)
	_, now.rebooting = lease.Annotations[controlplane.AnnotationRebooting]
	c.record(lease.Name, now, heard)
}

// recordUnreadable is renew for a Lease that cannot be read. Its duration is the last known one.
func (c *Cache) recordUnreadable(name string, err error, heard time.Time) {
	c.unreadable[store.Leases.Key(name)] = err
	now := c.lives[name]
	now.version, now.renewal, now.rebooting = versionOf(err), renewalOf(nil, err), true
	c.record(name, now, heard)
}

// record records the present state of a Lease.
func (c *Cache) record(name string, now leaseEntry, heard time.Time) {
	before, known := c.lives[name]
	now.present = true
	if !before.present || before.renewal != now.renewal {
		now.signAt, now.checkedAt = time.Now(), time.Time{}
		if known || c.synced[1] {
			now.renewed, now.heardAt = now.signAt, latest(now.heardAt, heard)
		}
	}
	c.lives[name] = now
	if !before.present || before.duration != now.duration {
		c.send()
	}
}

// Unreadable implements store.Follower.
func (f leaseFollower) Unreadable(name string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.recordUnreadable(name, err, f.leases.ConfirmedAt())
	f.reported(name)
}

// Delete implements store.Follower.
func (f leaseFollower) Delete(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.end(name)
	f.reported(name)
	f.forget(name)
	f.send()
}

// end records that a Lease does not exist any more. The caller has the lock.
func (c *Cache) end(name string) {
	delete(c.unreadable, store.Leases.Key(name))
	l := c.lives[name]
	if !l.present {
		return
	}
	l.present, l.version, l.renewal, l.checkedAt = false, "", "", time.Time{}
	c.lives[name] = l
}

// Synced implements store.Follower.
func (f leaseFollower) Synced() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for name, l := range f.lives {
		if !l.listed {
			f.end(name)
			f.reported(name)
		}
		f.forget(name)
	}
	f.synced[1] = true
	f.send()
}

// forget removes a Lease that does not exist, and whose host has no Node. A Lease that has just ended is
// kept for its duration: its host may be alive, and register another Node. The caller has the lock.
func (c *Cache) forget(name string) {
	l := c.lives[name]
	if _, exists := c.hosts[name]; !exists && !l.present && c.synced[0] && time.Since(l.signAt) > l.duration {
		delete(c.lives, name)
	}
}

// clearUnreadable clears the unreadable objects of a kind. The caller has the lock.
func (c *Cache) clearUnreadable(kind store.Kind) {
	maps.DeleteFunc(c.unreadable, func(name string, _ error) bool { return strings.HasPrefix(name, kind.Name+"/") })
}
