package lifecycle

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/internal/sanitize"
)

// ZoneState describes how many Nodes of a zone are not ready.
type ZoneState string

// The states.
const (
	ZoneNormal  ZoneState = "Normal"
	ZonePartial ZoneState = "PartialDisruption" // Policy.UnhealthyZoneThreshold or more, and at least three Nodes
	ZoneDown    ZoneState = "FullDisruption"    // no Node is ready
	ZoneEmpty   ZoneState = "Empty"             // it has no Node that counts for its state
)

// Zone is one zone of a fleet.
type Zone struct {
	Name     string // label values, joined with a slash; empty for Nodes without zone labels
	State    ZoneState
	Nodes    int // number of Nodes that count for the state
	NotReady int
	Rate     float64 // NoExecute taints a second
	Paused   string  // why no Node gets a NoExecute taint; empty if it is not paused

	last time.Time // when a Node of the zone last got a NoExecute taint
}

// longestInterval bounds the time between two NoExecute taints: a longer one could overflow.
const longestInterval = 366 * 24 * time.Hour

// interval returns the time between two NoExecute taints in the zone.
func (z Zone) interval() time.Duration {
	return time.Duration(min(float64(time.Second)/z.Rate, float64(longestInterval)))
}

// turn returns the earliest time at which a Node of the zone may get a NoExecute taint; zero for any.
func (z Zone) turn() time.Time {
	if z.last.IsZero() {
		return time.Time{}
	}
	return z.last.Add(z.interval())
}

// next returns the earliest time, not before now, at which a Node of the zone may get a NoExecute
// taint.
func (z Zone) next(now time.Time) time.Time {
	return latest(z.turn(), now)
}

// pace describes why a taint has to wait.
func (z Zone) pace() string {
	text := fmt.Sprintf("; one Node every %v", z.interval().Round(time.Millisecond))
	if z.Name != "" {
		text += " in zone " + z.Name
	}
	return text
}

// maxClockSkew is the largest accepted difference between the clocks of two servers.
const maxClockSkew = time.Minute

// lastTurn returns when the zone last had its turn, if it was before at a time.
func (h Host) lastTurn(before, now time.Time) time.Time {
	// A time far in the future comes from a wrong clock. It must not stop the zone for long.
	if h.Tainted.After(before) && h.Tainted.Before(now.Add(maxClockSkew)) {
		return h.Tainted
	}
	return before
}

// turnKept is how long a Node that had its turn comes after others, and how long the turn of a zone without Nodes counts
// at least.
const turnKept = time.Hour

// turns sets the turns of hosts as this server knows them. Earlier leaders have stored theirs on the Nodes, where hosts
// write too. A leader reads that until it knows what was stored before its term: no host can delay others for longer.
func (d *decider) turns(hosts []Host, policy Policy, term, confirmed, now time.Time) {
	kept := turnKept
	for _, rate := range []float64{policy.EvictionRate, policy.SecondaryEvictionRate} {
		if rate > 0 {
			kept = max(kept, Zone{Rate: rate}.interval())
		}
	}
	// Later than the next turn, and not when the Node is gone: a host may delete its Node, and register it again.
	maps.DeleteFunc(d.nodes, func(_ string, at time.Time) bool { return now.Sub(at) > kept+turnKept })
	d.forgetZones(hosts, kept, now)
	for i := range hosts {
		h := &hosts[i]
		h.Turn = d.nodes[h.Name]
		switch {
		case term.IsZero():
		case term.Equal(d.caughtUp):
			h.Tainted = time.Time{}
		default:
			d.lastTainted[h.Zone] = h.lastTurn(d.lastTainted[h.Zone], now)
		}
	}
	if confirmed.After(term) {
		d.caughtUp = term
	}
}

// forgetZones removes zones without hosts whose last turn is that long ago. A host can name a new zone as often as it
// likes.
func (d *decider) forgetZones(hosts []Host, kept time.Duration, now time.Time) {
	seen := map[string]bool{}
	for _, h := range hosts {
		seen[h.Zone] = true
	}
	maps.DeleteFunc(d.lastTainted, func(zone string, at time.Time) bool { return !seen[zone] && now.Sub(at) > kept })
}

// minPartial is how many Nodes must not be ready before a zone counts as partially disrupted.
const minPartial = 3

// zonesOf computes the state of each zone.
func zonesOf(hosts []judged, lastTainted map[string]time.Time, policy Policy, now time.Time) []Zone {
	byName := map[string]*Zone{}
	counted := 0
	for _, h := range hosts {
		z := byName[h.Zone]
		if z == nil {
			z = &Zone{Name: h.Zone, last: lastTainted[h.Zone]}
			byName[h.Zone] = z
		}
		z.last = h.lastTurn(z.last, now)
		if h.Excluded {
			continue
		}
		counted++
		z.Nodes++
		if h.Conditions.Ready != corev1.ConditionTrue {
			z.NotReady++
		}
	}
	zones := make([]Zone, 0, len(byName))
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		z := *byName[name]
		z.settle(policy, counted)
		zones = append(zones, z)
	}
	return zones
}

// settle sets state and rate. fleet is the number of Nodes in the fleet.
func (z *Zone) settle(policy Policy, fleet int) {
	z.State, z.Rate = ZoneNormal, policy.EvictionRate
	switch {
	case z.Nodes == 0:
		z.State = ZoneEmpty
	case z.NotReady == z.Nodes:
		z.State = ZoneDown
		// A single dead host does not show that its zone is cut off; two or more do.
		if policy.DeadZone == DeadZonePause && z.Nodes > 1 {
			z.Paused = "no Node of the zone is ready"
		}
	case z.NotReady >= minPartial && float64(z.NotReady)/float64(z.Nodes) >= policy.UnhealthyZoneThreshold:
		z.State, z.Rate = ZonePartial, policy.SecondaryEvictionRate
		if fleet <= policy.LargeFleetSizeThreshold {
			z.Rate = 0
		}
	}
	if z.Rate <= 0 && z.Paused == "" {
		z.Paused = "the rate of the zone is 0"
		if z.State == ZonePartial {
			z.Paused = fmt.Sprintf("%d of %d Nodes of the zone are not ready", z.NotReady, z.Nodes)
		}
	}
}

// allDown reports whether no zone has a Node that is ready.
func allDown(zones []Zone) bool {
	down := false
	for _, z := range zones {
		if z.State != ZoneDown && z.State != ZoneEmpty {
			return false
		}
		down = down || z.State == ZoneDown
	}
	return down
}

// mostZone is the longest name of a zone, in bytes.
const mostZone = 256

// ZoneOf returns the zone of a Node with these labels, as it is shown: zones that look the same are one.
func ZoneOf(of map[string]string, zoneLabels []string) string {
	var parts []string
	for _, label := range zoneLabels {
		if value := of[label]; value != "" {
			parts = append(parts, value)
		}
	}
	return sanitize.Text(strings.Join(parts, "/"), mostZone)
}
