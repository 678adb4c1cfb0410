// Package lifecycle judges the Nodes of a fleet: it marks the conditions of a host that gives no
// sign of life as Unknown, and taints Nodes by their conditions. It deletes no Node.
//
// Decide is pure: the same facts and time give the same decision, and `hostler fleet plan` prints
// what the controller executes. The rules are those of Kubernetes' node lifecycle controller (see
// docs/explanation/node-lifecycle.md for the differences).
package lifecycle

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"hostler.io/hostler/controlplane/store"
)

// Host has the facts of one Node that a decision needs.
type Host struct {
	Name    string
	UID     types.UID
	Version string // resourceVersion
	Zone    string // from its labels
	// Excluded leaves the Node out when the state of its zone is computed.
	Excluded      bool
	Unschedulable bool
	Conditions    Conditions
	ReadySince    time.Time // when Ready had its last transition
	Taints        []corev1.Taint
	// Tainted is when a controller last gave the Node a NoExecute taint, even if that was removed
	// since; zero if never. It counts for the rate of its zone, unless LastTainted has all turns.
	Tainted time.Time
	// Turn is when this server last gave the Node a NoExecute taint; zero if it has not.
	Turn time.Time
	// DeadAt is when the host counts as dead if it gives no sign of life until then. It is zero for a suspect
	// until its Lease was read.
	DeadAt time.Time
	// ChangedAt is when this server first saw the present state of Ready, by the monotonic clock.
	ChangedAt time.Time
	// Lease is the version of the host's Lease; empty if there is none.
	Lease string
}

// dead reports whether the host counts as dead at a time.
func (h Host) dead(now time.Time) bool { return !h.DeadAt.IsZero() && !now.Before(h.DeadAt) }

// Conditions has the status of each condition that decisions use; empty if the Node lacks it.
type Conditions struct {
	Ready, MemoryPressure, DiskPressure, PIDPressure, NetworkUnavailable corev1.ConditionStatus
}

// Facts are the facts of a fleet that Decide needs.
type Facts struct {
	Hosts []Host
	// LastTainted is when the controller last gave a NoExecute taint in each zone, as far as it knows.
	// It is not only on the Nodes, because a Node may have been deleted since.
	LastTainted map[string]time.Time
	// Checking is true while the store is checked for more dead hosts. No Node gets a NoExecute taint
	// meanwhile, because the state of its zone is not known yet.
	Checking bool
	// Confirmed is the moment up to which all changes of Nodes and Leases are known. A NoExecute taint
	// that is due later waits.
	Confirmed time.Time
}

// Decision is what to do now and later, and why.
type Decision struct {
	Now     []Change
	Pending []Pending // NoExecute taints that are due later, or paused
	Zones   []Zone    // by name
	// NotReady names Nodes that are not ready after the decision: the first ten, sorted.
	NotReady []string
	// Settled are Nodes that are not ready and have no due or pending change: the first ten by name.
	Settled []Settled
	// Dead are the hosts that count as dead, by Node.
	Dead map[string]Dead
	// AllDown is true if no zone has a Node that is ready. Then no Node is evicted: it is more likely
	// that the control plane is cut off than that all hosts are dead.
	AllDown bool
	Ignored []Ignored
	// Next is when the same facts lead to another decision; zero if they never do.
	Next time.Time
}

// Dead is a host that counts as dead as long as its Lease has the version Lease, or does not exist.
type Dead struct {
	UID   types.UID
	Lease string
}

// Ignored is a taint that a decision does not change, although its key belongs to the controller.
type Ignored struct{ Node, Message string }

// Settled is a Node that is not ready and has its taints already.
type Settled struct {
	Node   string
	Ready  corev1.ConditionStatus // empty if the Node lacks the condition
	Taints []corev1.Taint         // not-ready and unreachable, whichever client set them
}

// Step is a part of a Change.
type Step struct {
	Action string // such as "add taint node.kubernetes.io/unreachable:NoExecute"
	Reason string
}

// Change is what to write to one Node. The Node must still have this UID and ResourceVersion.
type Change struct {
	Node            string
	UID             types.UID
	ResourceVersion string
	Zone            string
	// Dead says that the host must be dead. Its Lease must have the version Lease, or not exist.
	Dead    bool
	Lease   string
	Unknown bool // set Ready, MemoryPressure, DiskPressure and PIDPressure to Unknown
	Add     []corev1.Taint
	Remove  []corev1.Taint
	Steps   []Step // the same as text, with reasons
}

// Object implements executor.Action.
func (c Change) Object() string { return store.Nodes.Key(c.Node) }

// Version implements executor.Action.
func (c Change) Version() string { return c.ResourceVersion }

// NoExecute reports whether the change adds a taint that counts against the rate of the zone.
func (c Change) NoExecute() bool {
	added := slices.ContainsFunc(c.Add, func(t corev1.Taint) bool { return t.Effect == corev1.TaintEffectNoExecute })
	replaced := slices.ContainsFunc(c.Remove, func(t corev1.Taint) bool { return t.Effect == corev1.TaintEffectNoExecute })
	return added && !replaced
}

// Pending is a NoExecute taint that a Node is to get.
type Pending struct {
	Node   string
	Zone   string
	Taint  string    // key
	Due    time.Time // zero while paused
	Reason string
}

// NoZoneReady is why no Node of any zone gets a NoExecute taint: see Decision.AllDown.
const NoZoneReady = "no zone has a Node that is ready"

// mostNamed bounds Decision.NotReady and Decision.Settled: a person checks the Nodes one by one.
const mostNamed = 10

// Decide returns the decision about a fleet at a time.
func Decide(facts Facts, policy Policy, now time.Time) Decision {
	d := Decision{Dead: map[string]Dead{}}
	hosts := make([]judged, len(facts.Hosts))
	for i, h := range facts.Hosts {
		hosts[i] = judge(h, now)
		d.wake(hosts[i].next)
		if h.dead(now) {
			d.Dead[h.Name] = Dead{h.UID, h.Lease}
		}
	}
	d.Zones = zonesOf(hosts, facts.LastTainted, policy, now)
	d.AllDown = allDown(d.Zones)
	queues := map[string][]*judged{}
	for i := range hosts {
		h := &hosts[i]
		for _, t := range h.foreignTaints() {
			d.Ignored = append(d.Ignored, Ignored{h.Name, fmt.Sprintf("taint %s: another client has set it, since it has a value", t.ToString())})
		}
		if h.Conditions.Ready != corev1.ConditionTrue && len(d.NotReady) < mostNamed {
			d.NotReady = append(d.NotReady, h.Name)
		}
		h.taintByCondition()
		if h.waiting = h.taintNoExecute(d.AllDown); h.waiting {
			queues[h.Zone] = append(queues[h.Zone], h)
		}
	}
	for i := range d.Zones {
		zone := &d.Zones[i]
		if zone.Paused == "" && facts.Checking {
			zone.Paused = "checking the Leases of more hosts"
		}
		d.schedule(zone, queues[zone.Name], facts.Confirmed, now)
	}
	for _, h := range hosts {
		if h.change.Unknown || len(h.change.Add)+len(h.change.Remove) > 0 {
			d.Now = append(d.Now, h.change)
		} else if !h.waiting && h.Conditions.Ready != corev1.ConditionTrue && len(d.Settled) < mostNamed {
			d.Settled = append(d.Settled, Settled{h.Name, h.Conditions.Ready, h.outageTaints()})
		}
	}
	return d
}

// wake schedules another decision at that time, unless it is zero.
func (d *Decision) wake(at time.Time) {
	if !at.IsZero() && (d.Next.IsZero() || at.Before(d.Next)) {
		d.Next = at
	}
}

// schedule gives the Nodes of a zone their NoExecute taints at the zone's rate. The Node whose last turn
// was longest ago is first: a host that removes its taints takes no turn of others. Among those without a
// turn, it is the one that has been not ready for the longest time. A taint that became due after the moment confirmed
// waits: until the store has confirmed the facts since then, they may be old.
func (d *Decision) schedule(zone *Zone, queue []*judged, confirmed, now time.Time) {
	slices.SortFunc(queue, func(a, b *judged) int {
		return cmp.Or(a.Turn.Compare(b.Turn), a.notReadySince.Compare(b.notReadySince), cmp.Compare(a.Name, b.Name))
	})
	paused := zone.Paused
	if d.AllDown {
		paused = NoZoneReady
	}
	if paused != "" {
		for _, h := range queue {
			d.Pending = append(d.Pending, Pending{Node: h.Name, Zone: zone.Name, Taint: h.noExecute, Reason: "paused: " + paused})
		}
		return
	}
	due := zone.next(now)
	for _, h := range queue {
		due = latest(due, h.Turn.Add(zone.interval())) // it may have had its last turn in another zone
		pending := Pending{Node: h.Name, Zone: zone.Name, Taint: h.noExecute, Due: due}
		switch {
		case due.After(now):
			d.wake(due)
			pending.Reason = h.why + zone.pace()
			d.Pending = append(d.Pending, pending)
		case h.dueSince().After(confirmed):
			d.wake(now.Add(store.ConfirmInterval))
			pending.Reason = h.why + "; until the store confirms that"
			d.Pending = append(d.Pending, pending)
			continue
		default:
			h.add(corev1.Taint{Key: h.noExecute, Effect: corev1.TaintEffectNoExecute}, h.why)
		}
		due = due.Add(zone.interval())
	}
}

// dueSince returns when the cause of the NoExecute taint began, by this server's clock.
func (j *judged) dueSince() time.Time {
	if j.noExecute == corev1.TaintNodeUnreachable {
		return latest(j.DeadAt, j.ChangedAt)
	}
	return j.ChangedAt
}

// judged is a Host with intermediate results of the decision.
type judged struct {
	Host
	change        Change
	notReadySince time.Time
	noExecute     string // key of the NoExecute taint that the Node should have; empty for none
	why           string // reason for that taint
	waiting       bool   // it has to wait for that taint, at the rate of its zone
	next          time.Time
}

// judge marks a host that counts as dead. The returned conditions are those after the change.
func judge(h Host, now time.Time) judged {
	j := judged{Host: h, notReadySince: h.ReadySince, change: Change{Node: h.Name, UID: h.UID, ResourceVersion: h.Version, Zone: h.Zone, Lease: h.Lease}}
	dead := h.dead(now)
	if !dead {
		j.next = h.DeadAt
	}
	if dead && !h.Conditions.unknown() {
		j.change.Unknown, j.change.Dead = true, true
		j.step("set Ready, MemoryPressure, DiskPressure and PIDPressure to Unknown", "the host gives no sign of life")
		if h.Conditions.Ready != corev1.ConditionUnknown {
			j.notReadySince = now
		}
		unknown := corev1.ConditionUnknown
		j.Conditions.Ready, j.Conditions.MemoryPressure, j.Conditions.DiskPressure, j.Conditions.PIDPressure = unknown, unknown, unknown, unknown
	}
	switch j.Conditions.Ready {
	case corev1.ConditionFalse:
		j.noExecute, j.why = corev1.TaintNodeNotReady, "the host reports that it is not ready"
	case corev1.ConditionUnknown:
		j.noExecute, j.why = corev1.TaintNodeUnreachable, "the host gives no sign of life"
		if !dead && !j.has(corev1.TaintNodeUnreachable, corev1.TaintEffectNoExecute) {
			// The host is alive again, or its grace period has started again: its own status decides.
			j.noExecute, j.why = "", ""
		}
	}
	return j
}

// unknown reports whether all conditions that are set to Unknown for a dead host are Unknown.
func (c Conditions) unknown() bool {
	return c.Ready == corev1.ConditionUnknown && c.MemoryPressure == corev1.ConditionUnknown &&
		c.DiskPressure == corev1.ConditionUnknown && c.PIDPressure == corev1.ConditionUnknown
}

// add adds a taint to the change. A host whose pods are to be evicted as unreachable must be dead.
func (j *judged) add(t corev1.Taint, why string) {
	if t.Key == corev1.TaintNodeUnreachable && t.Effect == corev1.TaintEffectNoExecute {
		j.change.Dead = true
	}
	j.change.Add = append(j.change.Add, t)
	j.step(fmt.Sprintf("add taint %s:%s", t.Key, t.Effect), why)
}

// remove adds the removal of a taint to the change.
func (j *judged) remove(t corev1.Taint, why string) {
	j.change.Remove = append(j.change.Remove, t)
	j.step(fmt.Sprintf("remove taint %s:%s", t.Key, t.Effect), why)
}

func (j *judged) step(action, reason string) {
	j.change.Steps = append(j.change.Steps, Step{action, reason})
}
