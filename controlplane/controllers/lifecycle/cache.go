package lifecycle

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/store"
	"hostler.io/hostler/internal/loop"
)

// Cache has the facts of all Nodes and Leases that decisions need, and when each host last gave a
// sign of life by the monotonic clock. Times in objects come from the clocks of hosts and prove
// nothing.
type Cache struct {
	endsLeases bool // the store deletes Leases of dead hosts: see store.Store
	zoneLabels []string
	changed    []loop.Signal

	mu         sync.Mutex // guards the fields below
	nodes      map[string]nodeEntry
	leases     map[string]leaseEntry
	synced     [2]bool // nodes, leases
	unreadable map[string]error
}

// nodeEntry is one Node.
type nodeEntry struct {
	host      Host
	seenAt    time.Time // when this Node was first seen
	heartbeat time.Time // LastHeartbeatTime of Ready, by the clock of the host
	reportAt  time.Time // when heartbeat last changed, by this server's clock
	listed    bool
}

// leaseEntry is one Lease.
type leaseEntry struct {
	present bool
	// gone reports that a read after the host's last report has shown that there is no Lease.
	gone     bool
	renewal  string
	signAt   time.Time     // when the Lease was first seen, renewed or ended
	renewed  time.Time     // last renewal after the Lease was first seen; zero if there was none
	duration time.Duration // 0 if unknown
	listed   bool
}

// NewCache returns an empty cache. endsLeases says whether the store deletes expired Leases. The
// cache sends the signals after each change that can lead to another decision.
func NewCache(endsLeases bool, zoneLabels []string, changed ...loop.Signal) *Cache {
	return &Cache{
		endsLeases: endsLeases, zoneLabels: zoneLabels, changed: changed,
		nodes: map[string]nodeEntry{}, leases: map[string]leaseEntry{}, unreadable: map[string]error{},
	}
}

// Nodes returns the follower for Nodes.
func (c *Cache) Nodes() store.Follower { return nodeFollower{c} }

// Leases returns the follower for Leases.
func (c *Cache) Leases() store.Follower { return leaseFollower{c} }

// Synced reports whether Nodes and Leases have been listed.
func (c *Cache) Synced() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.synced[0] && c.synced[1]
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
	// Since is since when the store has answered without a gap. Silence before it does not count.
	Since time.Time
	// Again is when counting last started again for hosts that are Unknown as well; zero if it did
	// not. It starts again after a gap, or when not all zones are down any more. A restart of the
	// server does not count: these hosts were judged before it.
	Again time.Time
}

// Hosts returns all hosts by name.
//
// suspects are hosts whose Lease has to be read before they count as dead. If the store ends Leases,
// it does not report that a Lease was created again (see store.Deletions). The result of the read
// is passed to Checked. Until then the hosts count as alive.
func (c *Cache) Hosts(policy Policy, clock Clock) (hosts []Host, suspects []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	hosts = make([]Host, 0, len(c.nodes))
	for name, n := range c.nodes {
		h, l := n.host, c.leases[name]
		h.DeadAt = c.deadAt(n, l, policy, clock)
		dead := !h.DeadAt.IsZero() && !clock.Now.Before(h.DeadAt)
		if dead && c.endsLeases && !l.gone && !h.Conditions.unknown() {
			suspects = append(suspects, name)
			h.DeadAt = time.Time{}
		}
		hosts = append(hosts, h)
	}
	slices.SortFunc(hosts, func(a, b Host) int { return strings.Compare(a.Name, b.Name) })
	slices.Sort(suspects)
	return hosts, suspects
}

// Checked records the read of a host's Lease; nil if there is none. An unreadable Lease counts as
// present.
func (c *Cache) Checked(name string, lease *coordinationv1.Lease, unreadable error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case lease != nil:
		c.renew(lease)
	case unreadable != nil:
		c.recordUnreadable(name, unreadable)
	default:
		l := c.leases[name]
		l.gone = true
		c.leases[name] = l
	}
	c.send()
}

// deadAt returns when a host counts as dead; zero while its Lease proves that it is alive.
func (c *Cache) deadAt(n nodeEntry, l leaseEntry, policy Policy, clock Clock) time.Time {
	from, renewed := clock.Since, l.signAt
	if n.host.Conditions.Ready == corev1.ConditionUnknown {
		from, renewed = clock.Again, l.renewed
	}
	grace := max(policy.GracePeriod, min(l.duration, controlplane.LongestLease))
	switch {
	case n.heartbeat.IsZero() && l.signAt.IsZero():
		if n.host.Conditions.Ready != corev1.ConditionUnknown {
			from = latest(from, n.seenAt)
		}
		return from.Add(policy.StartupGracePeriod)
	case !c.endsLeases:
		return latest(from, renewed, n.reportAt).Add(grace)
	case l.present:
		return time.Time{}
	case l.duration > 0:
		grace = l.duration
	}
	// A report after the end of the Lease shows that the host is alive and will create a Lease.
	again := n.reportAt
	if again.After(l.signAt) {
		again = again.Add(reportGrace)
	}
	return latest(from.Add(grace), l.signAt, again)
}

// reportGrace is how long a host may take to renew its Lease after it has reported its status.
const reportGrace = 10 * time.Second

// unready returns the Nodes that are not ready, in no order, but no Node without a status.
func (c *Cache) unready() []Host {
	c.mu.Lock()
	defer c.mu.Unlock()
	var hosts []Host
	for _, n := range c.nodes {
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

func latest(times ...time.Time) time.Time { return slices.MaxFunc(times, time.Time.Compare) }

// nodeFollower records Nodes.
type nodeFollower struct{ *Cache }

// Begin implements store.Follower.
func (f nodeFollower) Begin() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for name, n := range f.nodes {
		n.listed = false
		f.nodes[name] = n
	}
	f.forget(store.Nodes)
}

// Set implements store.Follower.
func (f nodeFollower) Set(_ string, object store.Object) {
	node := object.(*corev1.Node)
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.unreadable, store.Nodes.Key(node.Name))
	before, known := f.nodes[node.Name]
	now := entryOf(node, f.zoneLabels)
	now.listed, now.seenAt, now.reportAt = true, before.seenAt, before.reportAt
	another := !known || before.host.UID != now.host.UID
	if another { // the host did not write the Unknown of this Node
		now.seenAt, now.reportAt = time.Now(), time.Time{}
	}
	if another && now.host.Conditions.Ready != corev1.ConditionUnknown || known && !before.heartbeat.Equal(now.heartbeat) {
		now.reportAt = time.Now()
		if l := f.leases[node.Name]; l.gone {
			l.gone = false
			f.leases[node.Name] = l
		}
	}
	f.nodes[node.Name] = now
	if !known || !before.same(now) {
		f.send()
	}
}

// Unreadable implements store.Follower.
func (f nodeFollower) Unreadable(name string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.unreadable[store.Nodes.Key(name)] = err
	delete(f.nodes, name)
}

// Delete implements store.Follower.
func (f nodeFollower) Delete(name string, _ store.Object) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.unreadable, store.Nodes.Key(name))
	delete(f.nodes, name)
	f.send()
}

// Synced implements store.Follower.
func (f nodeFollower) Synced() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for name, n := range f.nodes {
		if !n.listed {
			delete(f.nodes, name)
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
	for name, l := range f.leases {
		l.listed = false
		f.leases[name] = l
	}
	f.forget(store.Leases)
}

// Set implements store.Follower.
func (f leaseFollower) Set(_ string, object store.Object) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.renew(object.(*coordinationv1.Lease))
}

// renew records a Lease. The caller has the lock.
func (c *Cache) renew(lease *coordinationv1.Lease) {
	delete(c.unreadable, store.Leases.Key(lease.Name))
	before, known := c.leases[lease.Name]
	now := leaseEntry{present: true, listed: true, renewal: controlplane.Renewal(lease), renewed: before.renewed}
	if s := lease.Spec.LeaseDurationSeconds; s != nil {
		now.duration = time.Duration(*s) * time.Second
	}
	now.signAt = before.signAt
	if !before.present || before.renewal != now.renewal {
		now.signAt = time.Now()
		if known || c.synced[1] {
			now.renewed = now.signAt
		}
	}
	c.leases[lease.Name] = now
	if !before.present {
		c.send()
	}
}

// Unreadable implements store.Follower.
func (f leaseFollower) Unreadable(name string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.recordUnreadable(name, err)
}

// recordUnreadable records a Lease that cannot be read. If the store ends Leases, it counts as
// present. The caller has the lock.
func (c *Cache) recordUnreadable(name string, err error) {
	c.unreadable[store.Leases.Key(name)] = err
	l := c.leases[name]
	l.present, l.listed = true, true
	c.leases[name] = l
}

// Delete implements store.Follower.
func (f leaseFollower) Delete(name string, last store.Object) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.unreadable, store.Leases.Key(name))
	f.end(name, last)
	f.send()
}

// end records that a Lease does not exist any more. The caller has the lock.
func (f leaseFollower) end(name string, last store.Object) {
	l := f.leases[name]
	if !l.present {
		return
	}
	if lease, ok := last.(*coordinationv1.Lease); ok && lease.Spec.LeaseDurationSeconds != nil {
		l.duration = time.Duration(*lease.Spec.LeaseDurationSeconds) * time.Second
	}
	l.present, l.gone, l.renewal = false, false, ""
	if f.endsLeases {
		l.signAt = time.Now()
	}
	f.leases[name] = l
}

// Synced implements store.Follower.
func (f leaseFollower) Synced() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for name, l := range f.leases {
		if !l.listed {
			f.end(name, nil)
		}
		if _, exists := f.nodes[name]; !exists && !f.leases[name].present && f.synced[0] {
			delete(f.leases, name)
		}
	}
	f.synced[1] = true
	f.send()
}

// forget clears the unreadable objects of a kind. The caller has the lock.
func (c *Cache) forget(kind store.Kind) {
	maps.DeleteFunc(c.unreadable, func(name string, _ error) bool { return strings.HasPrefix(name, kind.Name+"/") })
}

// LabelExclude leaves a Node out when the state of its zone is computed.
const LabelExclude = "node.kubernetes.io/exclude-disruption"

// same reports whether two entries lead to the same decision.
func (n nodeEntry) same(other nodeEntry) bool {
	n.host.Version = other.host.Version
	return reflect.DeepEqual(n.host, other.host)
}

// entryOf returns the entry of a Node.
func entryOf(node *corev1.Node, zoneLabels []string) nodeEntry {
	n := nodeEntry{
		host: Host{
			Name: node.Name, UID: node.UID, Version: node.ResourceVersion,
			Unschedulable: node.Spec.Unschedulable, Taints: slices.Clone(node.Spec.Taints),
		},
	}
	n.host.Zone = ZoneOf(node.Labels, zoneLabels)
	_, n.host.Excluded = node.Labels[LabelExclude]
	if t, err := time.Parse(time.RFC3339Nano, node.Annotations[AnnotationTainted]); err == nil {
		n.host.Tainted = t
	}
	for _, c := range slices.Backward(node.Status.Conditions) { // the first of a type counts, as in Kubernetes
		switch c.Type {
		case corev1.NodeReady:
			n.host.Conditions.Ready, n.host.ReadySince, n.heartbeat = c.Status, c.LastTransitionTime.Time, c.LastHeartbeatTime.Time
		case corev1.NodeMemoryPressure:
			n.host.Conditions.MemoryPressure = c.Status
		case corev1.NodeDiskPressure:
			n.host.Conditions.DiskPressure = c.Status
		case corev1.NodePIDPressure:
			n.host.Conditions.PIDPressure = c.Status
		case corev1.NodeNetworkUnavailable:
			n.host.Conditions.NetworkUnavailable = c.Status
		}
	}
	return n
}
