package lifecycle

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/store"
)

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

// leaseEntry is what is known of one Lease. Only its renewals prove that its host is alive. Its existence proves
// nothing: on etcd, everybody can keep an etcd lease alive. Nor does its end prove a death: somebody may have deleted
// it, and a member of etcd that led, was suspended and continues ends all that it takes to have expired meanwhile.
type leaseEntry struct {
	present   bool
	version   string        // empty if there is no Lease
	checkedAt time.Time     // when the last read was requested that has found no other Lease
	renewal   string        // digest of what each renewal changes
	signAt    time.Time     // when the Lease was first seen or renewed
	renewed   time.Time     // last renewal after the Lease was first seen; zero if there was none
	heardAt   time.Time     // after which it was last renewed; zero if that is not known
	duration  time.Duration // 0 if unknown, or longer than a Lease may last
	rebooting bool          // its host has its turn to reboot, or that cannot be read
	listed    bool
	// reportedAt is when the watch last reported this Lease, or its end. An answer that was requested before may be older.
	reportedAt time.Time
}

// Sign is what a server knows of the signs of life of one host.
type Sign struct {
	Alive bool // there was one
	// Idle reports that one came without the mark of a host that reboots. hostler marks each renewal; a kubelet none.
	Idle  bool
	Known time.Time // since when signs count; zero while they do not
}

// durationOf returns the duration of a Lease; 0 if it is not known, or longer than any may last.
func durationOf(seconds *int32) time.Duration {
	if seconds == nil || *seconds <= 0 || time.Duration(*seconds)*time.Second > controlplane.LongestLease {
		return 0
	}
	return time.Duration(*seconds) * time.Second
}

// deadAt returns when a host counts as dead. It does not matter whether its Node is Unknown already: the host may have
// returned since, and its status may be refused.
func (c *Cache) deadAt(n nodeEntry, l leaseEntry, policy Policy, clock Clock) time.Time {
	if n.heartbeat.IsZero() && l.signAt.IsZero() {
		return latest(clock.Since, n.seenAt).Add(policy.StartupGracePeriod)
	}
	grace := max(policy.GracePeriod, l.duration)
	if c.exact && l.duration > 0 {
		grace = l.duration
	}
	return latest(clock.Since, l.signAt, n.reportAt).Add(grace)
}

// renewalOf returns the digest of what each renewal of a Lease changes; empty if there is no Lease. Of one that cannot be
// read, that is the version: on etcd, nobody but its host and the servers may write it.
func renewalOf(lease *coordinationv1.Lease, unreadable error) string {
	switch {
	case unreadable != nil:
		return digest("unreadable " + versionOf(unreadable))
	case lease != nil:
		return digest(controlplane.Renewal(lease))
	}
	return ""
}

// versionOf returns the version of an object that cannot be read; empty if it is not known.
func versionOf(unreadable error) string {
	if e, is := errors.AsType[*store.UnreadableError](unreadable); is {
		return e.Version
	}
	return ""
}

// digest returns a text of fixed length for a text that a host has written.
func digest(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text))) }

func latest(times ...time.Time) time.Time { return slices.MaxFunc(times, time.Time.Compare) }
