package lifecycle

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane"
)

// reportGrace is how long a host may take to renew its Lease after it has reported its status.
const reportGrace = 10 * time.Second

// nodeEntry is one Node.
type nodeEntry struct {
	host      Host
	seenAt    time.Time // when this Node was first seen
	changedAt time.Time // when Ready was first seen in its present state
	heartbeat time.Time // LastHeartbeatTime of Ready, by the clock of the host
	reportAt  time.Time // when heartbeat last changed, or was first seen, by this server's clock
	heardAt   time.Time // after which heartbeat last changed; zero if it has not
	listed    bool
}

// leaseEntry is what is known of one Lease. present, deleted and observed are about a store that ends
// Leases.
type leaseEntry struct {
	present bool
	version string // empty if there is no Lease
	ended   string // version before the Lease was deleted; empty if it was not, or that is not known
	// deleted reports that someone has deleted the Lease, not the store that ends it.
	deleted bool
	// observed reports that the watch has reported the end of the Lease.
	observed  bool
	checkedAt time.Time // when the last read was requested that has found no other Lease
	renewal   string
	signAt    time.Time     // when the Lease was first seen, renewed or ended
	renewed   time.Time     // last renewal after the Lease was first seen; zero if there was none
	heardAt   time.Time     // after which it was last renewed; zero if that is not known
	duration  time.Duration // 0 if unknown, or longer than a Lease may last
	listed    bool
}

// proves reports whether the Lease proves, as long as it exists, that its host is alive. One that
// lasts for longer than controlplane.LongestLease does not: the store would end it too late.
func (l leaseEntry) proves() bool { return l.present && l.duration > 0 }

// durationOf returns the duration of a Lease; 0 if it is not known, or longer than any may last.
func durationOf(seconds *int32) time.Duration {
	if seconds == nil || *seconds <= 0 || time.Duration(*seconds)*time.Second > controlplane.LongestLease {
		return 0
	}
	return time.Duration(*seconds) * time.Second
}

// deadAt returns when a host counts as dead; zero while its Lease proves that it is alive.
func (c *Cache) deadAt(n nodeEntry, l leaseEntry, policy Policy, clock Clock) time.Time {
	from, renewed := clock.Since, l.signAt
	if n.host.Conditions.Ready == corev1.ConditionUnknown {
		from, renewed = clock.Again, l.renewed
	}
	grace := max(policy.GracePeriod, l.duration)
	switch {
	case n.heartbeat.IsZero() && l.signAt.IsZero():
		if n.host.Conditions.Ready != corev1.ConditionUnknown {
			from = latest(from, n.seenAt)
		}
		return from.Add(policy.StartupGracePeriod)
	case !c.endsLeases:
		return latest(from, renewed, n.reportAt).Add(grace)
	case l.proves():
		return time.Time{}
	case l.present: // its end would come too late, or never
		return latest(from, renewed, n.reportAt).Add(controlplane.LongestLease)
	case l.duration > 0:
		grace = l.duration
	case n.host.Conditions.Ready != corev1.ConditionUnknown: // a Node that was registered since had no time for a Lease
		from = latest(from, n.seenAt)
	}
	return c.endedAt(n, l, from, clock.Again, grace)
}

// endedAt returns when a host counts as dead whose Lease does not exist any more. That alone proves no death: a member of
// etcd that led, was suspended and continues still ends all Leases that it takes to have expired meanwhile.
func (c *Cache) endedAt(n nodeEntry, l leaseEntry, from, again time.Time, grace time.Duration) time.Time {
	if l.observed { // no server was needed to see that the Lease lasted until then
		from = again
	}
	// A report after the end of the Lease shows that the host is alive and will create a Lease.
	report := n.reportAt
	if report.After(l.signAt) {
		report = report.Add(reportGrace)
	}
	// The host may be alive, and create it again. It renews at least every half of the duration.
	end := l.signAt.Add(grace * 3 / 4)
	if l.deleted {
		end = l.signAt.Add(grace)
	}
	return latest(from.Add(grace), end, report)
}

func latest(times ...time.Time) time.Time { return slices.MaxFunc(times, time.Time.Compare) }
