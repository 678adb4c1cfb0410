// Package heartbeats chooses how long the Leases of a fleet last, so that all hosts together renew no
// more Leases a second than configured. It never replaces what a person has chosen.
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
	// DefaultLease is the duration that agents have by default, and the shortest that is chosen.
	DefaultLease = controlplane.DefaultLease
	// step is the unit of durations that are chosen.
	step = 10 * time.Second
	// headroom is the part of the most renewals that a shorter duration must stay below, so that a few
	// hosts more or less change nothing.
	headroom = 0.8
)

// Facts are what a decision is made from.
type Facts struct {
	// Hosts is the number of Nodes. Those of dead hosts count: they may return at once.
	Hosts   int
	Setting store.Setting
	// MaxPerSecond is the most renewals a second; 0 changes nothing.
	MaxPerSecond float64
}

// Decision is how long Leases last, and what is to change.
type Decision struct {
	Facts
	Lease     time.Duration // as it is; 0 if the setting is no duration
	PerSecond float64       // renewals, with that duration
	Reason    string        // for the duration
	Now       []Change      // one at most
}

// Change is another value of the setting. It must still be as before.
type Change struct {
	Before store.Setting
	Value  string // empty to remove it
	Reason string
}

// Object implements executor.Action.
func (c Change) Object() string { return "settings/" + store.LeaseDuration }

// Version implements executor.Action.
func (c Change) Version() string { return c.Before.Version }

// Action says what is done, for people.
func (c Change) Action() string {
	if c.Value == "" {
		return fmt.Sprintf("remove the setting: Leases last %v", DefaultLease)
	}
	return "let Leases last " + c.Value
}

// Decide returns what is to change.
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
	switch shorter := above(f.Hosts, headroom*f.MaxPerSecond); {
	case d.Lease == 0 || d.PerSecond > f.MaxPerSecond:
		next = least(f.Hosts, f.MaxPerSecond)
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

// perSecond is how many Leases so many hosts renew.
func perSecond(hosts int, lease time.Duration) float64 {
	return float64(hosts) * controlplane.LeaseRenewals / lease.Seconds()
}

// least is the shortest duration with which the hosts renew at most so many Leases a second.
func least(hosts int, perSecond float64) time.Duration {
	return steps(math.Ceil(float64(hosts) * controlplane.LeaseRenewals / perSecond / step.Seconds()))
}

// above is the same for fewer than so many.
func above(hosts int, perSecond float64) time.Duration {
	return steps(math.Floor(float64(hosts)*controlplane.LeaseRenewals/perSecond/step.Seconds()) + 1)
}

// steps is a number of steps, from the default to the longest Lease.
func steps(n float64) time.Duration {
	return max(time.Duration(min(n, float64(controlplane.LongestLease/step)))*step, DefaultLease)
}

// text is a duration as a person writes it: 2m and not 2m0s.
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
