package lifecycle

import (
	"cmp"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// recently is how long a renewal proves that a host is not among those that are silent.
	recently = 15 * time.Second
	// mostSilent bounds a Silence. Hosts that are not Unknown yet, and those that are silent for the longest time, are in it.
	mostSilent = 1000
)

// Silence is what a process of a server leaves to the next one on the same machine: for how long hosts have been
// silent. Without it, a server that starts again and again gives a dead host its whole grace period each time. Each
// duration ends when the Silence was taken.
type Silence struct {
	Contact   time.Duration // the time without a gap, see Clock.Since
	Answered  time.Duration // since the store has last answered
	Confirmed time.Duration // since the last moment up to which all changes are known
	Hosts     []SilentHost
}

// SilentHost is a host that has not renewed its Lease recently.
type SilentHost struct {
	Name      string
	UID       types.UID
	Ready     corev1.ConditionStatus
	Heartbeat time.Time     // by the clock of the host
	Seen      time.Duration // since its Node was first seen
	Changed   time.Duration // since Ready has its state
	Reported  time.Duration // since Heartbeat was first seen

	Lease    bool          // its Lease exists
	Renewal  string        // digest of the last renewal
	Renewed  time.Duration // since the last renewal was seen; 0 if none was seen
	Duration time.Duration // of the Lease
}

// Silence returns which hosts are silent; an error if the server does not know that at present.
func (c *Controller) Silence(now time.Time) (Silence, error) {
	c.mu.Lock()
	since, allDown := c.since, c.decision.AllDown
	c.mu.Unlock()
	if since.IsZero() || allDown {
		return Silence{}, errors.New("the server does not know which hosts are alive")
	}
	fresh, err := c.cache.Fresh(c.contact, now)
	if err != nil {
		return Silence{}, err
	}
	return Silence{
		Contact: now.Sub(latest(since, fresh.Since)), Answered: now.Sub(c.contact.Answer()), Confirmed: now.Sub(fresh.Confirmed), Hosts: c.cache.silent(now),
	}, nil
}

// Resume makes the silence that the process before this one saw count. It was taken at a moment. Call it before Run.
// An empty Silence has no effect.
func (c *Controller) Resume(s Silence, taken time.Time) {
	if s.Contact <= 0 {
		return
	}
	since, confirmed := taken.Add(-s.Contact), taken.Add(-s.Confirmed)
	c.contact.Resume(since, taken.Add(-s.Answered))
	c.cache.nodes.Resume(since, confirmed)
	c.cache.leases.Resume(since, confirmed)
	c.cache.resume(s.Hosts, taken)
}

// silent returns the hosts that have not renewed recently.
func (c *Cache) silent(now time.Time) []SilentHost {
	c.mu.Lock()
	defer c.mu.Unlock()
	var hosts []SilentHost
	for name, n := range c.hosts {
		l := c.lives[name]
		if !l.renewed.IsZero() && now.Sub(l.renewed) < recently {
			continue
		}
		h := SilentHost{
			Name: name, UID: n.host.UID, Ready: n.host.Conditions.Ready, Heartbeat: n.heartbeat,
			Seen: now.Sub(n.seenAt), Changed: now.Sub(n.changedAt), Reported: now.Sub(n.reportAt),
			Lease: l.present, Renewal: l.renewal, Duration: l.duration,
		}
		if !l.signAt.IsZero() {
			h.Renewed = now.Sub(l.signAt)
		}
		hosts = append(hosts, h)
	}
	slices.SortFunc(hosts, func(a, b SilentHost) int { // those that are not Unknown yet are first
		return cmp.Or(a.unknown()-b.unknown(), cmp.Compare(b.silence(), a.silence()), cmp.Compare(a.Name, b.Name))
	})
	return hosts[:min(len(hosts), mostSilent)]
}

// unknown returns 1 for a host whose Node is Unknown, otherwise 0.
func (h SilentHost) unknown() int {
	if h.Ready == corev1.ConditionUnknown {
		return 1
	}
	return 0
}

// silence returns for how long the host has given no sign of life.
func (h SilentHost) silence() time.Duration {
	if h.Renewed == 0 {
		return h.Reported
	}
	return min(h.Reported, h.Renewed)
}

// resume records what the process before this one knew of hosts, up to a moment.
func (c *Cache) resume(hosts []SilentHost, taken time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, h := range hosts {
		n := nodeEntry{
			host:   Host{Name: h.Name, UID: h.UID, Conditions: Conditions{Ready: h.Ready}},
			seenAt: taken.Add(-h.Seen), changedAt: taken.Add(-h.Changed), heartbeat: h.Heartbeat, reportAt: taken.Add(-h.Reported),
		}
		c.hosts[h.Name] = n
		if h.Renewed > 0 {
			c.lives[h.Name] = leaseEntry{present: h.Lease, renewal: h.Renewal, signAt: taken.Add(-h.Renewed), duration: h.Duration}
		}
	}
}
