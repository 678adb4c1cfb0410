// Package heartbeats chooses the duration of a fleet's Leases, so that all hosts together renew no
// more Leases a second than configured. It never replaces a value that a person has set.
//
// Decide is pure: `hostler fleet plan` prints what the controller executes.
package heartbeats

import (
	"fmt"
	"math"
	"strings"
	"time"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/store"
)

const (
	// DefaultMaxPerSecond is the default of heartbeats.maxPerSecond.
	DefaultMaxPerSecond = 300
	// DefaultLease is the default duration of agents, and the shortest duration that is chosen.
	DefaultLease = controlplane.DefaultLease
	// step is the unit of chosen durations.
	step = 10 * time.Second
	// headroom is the fraction of the highest rate that a shorter duration must stay below. Otherwise
	// a few hosts more or less would change the duration again and again.
	headroom = 0.8
)

// Facts are the input of a decision.
type Facts struct {
	// Hosts is the number of Nodes. Nodes of dead hosts count: the hosts may return at once.
	Hosts   int
	Setting store.Setting
	// MaxPerSecond is the highest rate of renewals; 0 changes nothing.
	MaxPerSecond float64
}

// Decision is the duration of Leases, and the change that leads to it.
type Decision struct {
	Facts
	Lease     time.Duration // the present duration; 0 if the setting is invalid
	PerSecond float64       // renewals with that duration
	Reason    string        // of the duration
	Now       []Change      // at most one
}

// Change is a new value of the setting. The setting must still have the value Before.
type Change struct {
	Before store.Setting
	Value  string // empty to remove it
	Reason string
}

// Object implements executor.Action.
func (c Change) Object() string { return "settings/" + store.LeaseDuration }

// Version implements executor.Action.
func (c Change) Version() string { return c.Before.Version }

// Action describes the change.
func (c Change) Action() string {
	if c.Value == "" {
		return fmt.Sprintf("remove the setting: Leases last %v", DefaultLease)
	}
	return "let Leases last " + c.Value
}

// Decide returns the decision for the facts.
func Decide(f Facts) Decision {
	d := Decision{Facts: f, Lease: DefaultLease}
	if f.Setting.Value != "" {
		d.Lease, _ = time.ParseDuration(f.Setting.Value)
		d.Lease = max(d.Lease, 0)
	}
	if d.Lease > 0 {
		d.PerSecond = perSecond(f.Hosts, d.Lease)
	}
	switch {
	case f.Setting.Persons():
		d.Reason = fmt.Sprintf("a person has set %s to %q", store.LeaseDuration, f.Setting.Value)
		return d
	case f.MaxPerSecond == 0:
		d.Reason = "heartbeats.maxPerSecond is 0: the server changes nothing"
		return d
	}
	next := d.Lease
	switch shorter := shortestBelow(f.Hosts, headroom*f.MaxPerSecond); {
	case d.Lease == 0 || d.PerSecond > f.MaxPerSecond:
		next = shortestAtMost(f.Hosts, f.MaxPerSecond)
		d.Reason = fmt.Sprintf("%d hosts renew %.1f Leases a second, more than heartbeats.maxPerSecond (%v)", f.Hosts, d.PerSecond, f.MaxPerSecond)
	case shorter < d.Lease:
		next = shorter
		d.Reason = fmt.Sprintf("%d hosts with Leases of %s renew %.1f a second, less than %v%% of heartbeats.maxPerSecond (%v)", f.Hosts, text(shorter), perSecond(f.Hosts, shorter), headroom*100, f.MaxPerSecond)
	default:
		d.Reason = fmt.Sprintf("enough for heartbeats.maxPerSecond (%v)", f.MaxPerSecond)
	}
	switch {
	case next != d.Lease:
		c := Change{Before: f.Setting, Value: text(next), Reason: d.Reason}
		if next == DefaultLease {
			c.Value = ""
		}
		d.Now = append(d.Now, c)
	case d.PerSecond > f.MaxPerSecond:
		d.Reason += fmt.Sprintf("; no Lease lasts longer than %s", text(controlplane.LongestLease))
	}
	return d
}

// perSecond returns the rate at which that many hosts renew Leases of a duration.
func perSecond(hosts int, lease time.Duration) float64 {
	return float64(hosts) * controlplane.LeaseRenewals / lease.Seconds()
}

// shortestAtMost returns the shortest duration with which the hosts renew at most that many Leases
// a second.
func shortestAtMost(hosts int, perSecond float64) time.Duration {
	return steps(math.Ceil(float64(hosts) * controlplane.LeaseRenewals / perSecond / step.Seconds()))
}

// shortestBelow returns the shortest duration with which the hosts renew fewer Leases a second than
// that.
func shortestBelow(hosts int, perSecond float64) time.Duration {
	return steps(math.Floor(float64(hosts)*controlplane.LeaseRenewals/perSecond/step.Seconds()) + 1)
}

// steps returns a duration of n steps, within the default and the longest duration.
func steps(n float64) time.Duration {
	return max(time.Duration(min(n, float64(controlplane.LongestLease/step)))*step, DefaultLease)
}

// text formats a duration as a person writes it: 2m, not 2m0s.
func text(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
