package slots

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"hostler.io/hostler/internal/few"
)

const (
	// repeatTime is how long a slot is kept free for the oldest request until the client repeats it.
	// Zincati repeats it every 5 minutes. For a client with a longer interval, it is twice that interval.
	repeatTime = 15 * time.Minute
	// longestInterval is the longest interval that counts, enough for an hourly timer. The interval is learned from two
	// requests of one client: while a slot is kept free for it, nobody else reboots.
	longestInterval = time.Hour
	// forgetTime is the time after which a request that is not repeated loses its place.
	forgetTime = 24 * time.Hour
	// refreshTime is how old Request.Asked may become, so that not every repetition causes a write.
	refreshTime = 5 * time.Minute
	// maxClockSkew is by how much the clocks of two servers may differ.
	maxClockSkew = time.Minute
)

// Policy is the configuration of a group.
type Policy struct {
	Group          string
	Slots          int
	OneZoneAtATime bool
	MaxUnavailable Part
}

// Node has the facts of one Node that a decision uses.
type Node struct {
	Name   string
	UID    types.UID
	Zone   string
	BootID string
	Group  string
	Ready  bool
	// Excluded reports that the Node does not count as a member of the group.
	Excluded bool
	// Unseen reports that the host has given no sign of life since the store was away, so that its Ready
	// may be old.
	Unseen bool
	// Slotless reports that the host reboots without a slot in the record. It may have been lost in a restore that this
	// server did not see.
	Slotless bool
}

// Nodes are all Nodes by name.
type Nodes map[string]Node

// WaitReason is the reason why a request gets no slot now. The values are valid for `kind` in FleetLock's errors.
type WaitReason string

// The reasons.
const (
	Full        WaitReason = "failed_lock_semaphore_full"
	OtherZone   WaitReason = "failed_lock_other_zone"
	Unavailable WaitReason = "failed_lock_nodes_not_ready"
	Unseen      WaitReason = "failed_lock_nodes_not_seen"
	Unconfirmed WaitReason = "failed_lock_nodes_not_confirmed"
	Queued      WaitReason = "failed_lock_queued"
	QueueFull   WaitReason = "failed_lock_queue_full"
	Forgotten   WaitReason = "failed_lock_not_repeated"
	Paused      WaitReason = "failed_lock_paused"
	OtherClient WaitReason = "failed_lock_other_client"
)

// Wait says why a request gets no slot now.
type Wait struct {
	Reason  WaitReason
	Message string
}

// Verdict is the decision about a waiting request.
type Verdict struct {
	Request
	Wait *Wait // nil if the request gets a slot; a FleetLock client must repeat it for that
}

// Ask requests a slot. It returns nil if the client has a slot, new or from before. Otherwise the client
// waits, and must ask again.
func (s *State) Ask(c Client, p Policy, nodes Nodes, now time.Time) *Wait {
	held, waits := s.Holder(c.ID), s.Request(c.ID)
	switch {
	case held != nil && held.Type != c.Type, waits != nil && waits.Type != c.Type:
		return &Wait{OtherClient, fmt.Sprintf("the host of this ID has a request by another way than %s: only one may reboot it", c.Type)}
	case held != nil:
		return nil
	}
	s.forget(now)
	if wait := s.enqueue(c, now); wait != nil {
		return wait
	}
	for _, v := range s.Plan(p, nodes, now, c.ID) {
		if v.ID != c.ID {
			continue
		}
		if v.Wait == nil {
			s.grant(v.Request, nodes, now)
		}
		return v.Wait
	}
	return nil // not reached: the request waits, so Plan has a verdict
}

// enqueue adds a request to the queue, or repeats it. It returns a Wait if the queue is full.
func (s *State) enqueue(c Client, now time.Time) *Wait {
	c.Reason = Shorten(c.Reason)
	r := s.Request(c.ID)
	switch {
	case r != nil:
		s.Waiting = slices.Clone(s.Waiting)
		s.Request(c.ID).repeat(c, now)
	default:
		if wait := s.QueueFull(c.ID, now); wait != nil {
			return wait
		}
		s.Requests++
		s.Waiting = append(slices.Clone(s.Waiting), Request{Client: c, Number: s.Requests, Since: stamp(now), Asked: stamp(now)})
	}
	return nil
}

// QueueFull returns why the queue has no place for a FleetLock client; nil if it has one, or if the client is known.
func (s State) QueueFull(id string, now time.Time) *Wait {
	s.forget(now)
	if s.Holder(id) != nil || s.Request(id) != nil || s.waiting(FleetLock) < mostFleetLock {
		return nil
	}
	return &Wait{QueueFull, fmt.Sprintf("%d FleetLock clients wait already, no more are recorded", mostFleetLock)}
}

// repeat records that the client has repeated its request.
func (r *Request) repeat(c Client, now time.Time) {
	r.Client = c
	switch past := now.Sub(r.Asked.Time); {
	case past < -maxClockSkew: // the clock of another server was wrong
		r.Asked = stamp(now)
	case past >= refreshTime:
		r.Asked, r.EverySeconds = stamp(now), int64(past/time.Second)
	}
}

// forget removes requests that FleetLock clients no longer repeat.
func (s *State) forget(now time.Time) {
	s.Waiting = slices.DeleteFunc(slices.Clone(s.Waiting), func(r Request) bool { return r.Type == FleetLock && now.Sub(r.Asked.Time) > forgetTime })
}

// overdue reports whether a request was not repeated in time. No slot is kept free for it then.
func (r Request) overdue(now time.Time) bool {
	every := time.Duration(min(r.EverySeconds, int64(longestInterval/time.Second))) * time.Second
	return r.Type == FleetLock && now.Sub(r.Asked.Time) > max(repeatTime, 2*every)
}

// grant gives a slot to a waiting request.
func (s *State) grant(r Request, nodes Nodes, now time.Time) {
	if node, is := nodes[r.ID]; is {
		if !slices.ContainsFunc(s.Holders, func(h Holder) bool { return h.Node != "" }) {
			s.Turn = s.Requests
		}
		s.remove(r.ID)
		s.Holders = append(slices.Clone(s.Holders), Holder{Client: r.Client, Number: r.Number, Since: stamp(now), Node: node.Name, UID: node.UID, Zone: node.Zone, BootID: node.BootID})
		return
	}
	s.remove(r.ID)
	s.Holders = append(slices.Clone(s.Holders), Holder{Client: r.Client, Number: r.Number, Since: stamp(now)})
}

// Plan decides about each waiting request, oldest first. An older request that may have a slot keeps it
// free, unless it was not repeated in time. asking is the ID of the client that repeats its request now.
func (s *State) Plan(p Policy, nodes Nodes, now time.Time, asking string) []Verdict {
	d := s.decision(p, nodes)
	verdicts := make([]Verdict, 0, len(s.Waiting))
	for _, r := range s.Waiting {
		v := Verdict{Request: r}
		if r.Paused {
			v.Wait = &Wait{Paused, "the host does not want the slot yet"}
		} else if r.ID != asking && r.overdue(now) {
			v.Wait = &Wait{Forgotten, fmt.Sprintf("it was last repeated at %s: no slot is kept free for it", clock(r.Asked.Time))}
		} else if v.Wait = d.judge(r); v.Wait == nil {
			d.reserve(r)
			if (r.Type == Agent || r.ID == asking) && s.unconfirmed(r) {
				v.Wait = &Wait{Unconfirmed, "the store has not yet confirmed which Nodes are ready"}
			}
		} else if v.Wait.Reason == OtherZone && d.zoneBlocked == "" {
			d.zoneBlocked = r.ID
		}
		verdicts = append(verdicts, v)
	}
	return verdicts
}

// decision is the state of a Plan in progress.
type decision struct {
	policy      Policy
	nodes       Nodes
	requests    int64 // State.Requests
	members     int   // number of Nodes in the group
	notReady    []string
	unseen      []string // Nodes of the group without a slot whose hosts gave no sign of life yet
	slotless    []string // Nodes of the group without a slot whose hosts reboot
	held        []Holder
	reserved    []string // IDs of the older requests for which a slot is kept free
	zoneHolder  *Holder  // first holder with a Node, or the first request with a slot kept free; nil if there is none
	turn        int64    // State.Turn
	elsewhere   map[string]otherSlot
	zoneBlocked string // ID of the oldest request that must wait because of its zone; empty for none
}

func (s *State) decision(p Policy, nodes Nodes) *decision {
	d := &decision{policy: p, nodes: nodes, held: s.Holders, requests: s.Requests, turn: s.Turn, elsewhere: s.elsewhere}
	d.members, d.notReady = s.Members(p.Group, nodes)
	d.unseen = s.without(p.Group, nodes, func(n Node) bool { return n.Unseen })
	d.slotless = s.without(p.Group, nodes, func(n Node) bool { return n.Slotless })
	for i, h := range s.Holders {
		if h.Node != "" && d.zoneHolder == nil {
			d.zoneHolder = &s.Holders[i]
		}
	}
	return d
}

// Members returns how many Nodes a group has, and which of them are not ready although they hold no slot.
func (s *State) Members(group string, nodes Nodes) (all int, notReady []string) {
	for _, n := range nodes {
		if n.Group == group && !n.Excluded {
			all++
		}
	}
	return all, s.without(group, nodes, func(n Node) bool { return !n.Ready && !n.Excluded })
}

// without returns the Nodes of a group that hold no slot and match, sorted.
func (s *State) without(group string, nodes Nodes, match func(Node) bool) (names []string) {
	for _, n := range nodes {
		if n.Group == group && match(n) && !slices.ContainsFunc(s.Holders, func(h Holder) bool { return h.Node == n.Name }) {
			names = append(names, n.Name)
		}
	}
	slices.Sort(names)
	return names
}

// judge returns why a request gets no slot now; nil if it gets one.
func (d *decision) judge(r Request) *Wait {
	node, isNode := d.nodes[r.ID]
	others := slices.DeleteFunc(slices.Clone(d.notReady), func(name string) bool { return name == r.ID })
	switch {
	case d.policy.Slots == 0:
		return &Wait{Full, "the group has no slots: its `slots` is 0"}
	case d.elsewhere[r.ID].group != "" && (r.Type == Agent || d.elsewhere[r.ID].by == Agent):
		return &Wait{OtherClient, fmt.Sprintf("the host holds a slot of group %s, and gets no second one", d.elsewhere[r.ID].group)}
	case len(d.held) >= d.policy.Slots:
		return &Wait{Full, "all slots of the group are held: " + names(d.held)}
	case len(d.held)+len(d.slotless) >= d.policy.Slots:
		return &Wait{Full, "hosts reboot without a slot, perhaps since the store was restored before this server started: " + few.Names(d.slotless, mostNamed)}
	case len(d.held)+len(d.slotless)+len(d.reserved) >= d.policy.Slots:
		return &Wait{Queued, "a slot is kept free for an older request: " + few.Names(d.reserved, mostNamed)}
	case d.zoneBlocked != "" && r.Number > d.turn:
		return &Wait{Queued, "an older request waits for another zone: " + d.zoneBlocked}
	case len(d.unseen) > 0:
		return &Wait{Unseen, "no sign of life since this server follows the store, or since the store was away: " + few.Names(d.unseen, mostNamed)}
	case len(others) > d.policy.MaxUnavailable.Of(d.members):
		return &Wait{Unavailable, fmt.Sprintf("Nodes of the group that are not ready, or give no sign of life: %d of %d, `maxUnavailable` is %s: %s", len(others), d.members, d.policy.MaxUnavailable, few.Names(others, mostNamed))}
	case d.policy.OneZoneAtATime && isNode:
		if other := d.inOtherZone(node); other != nil {
			return &Wait{OtherZone, fmt.Sprintf("hosts of zone %q reboot, such as %s; this one is in zone %q", other.Zone, other.ID, node.Zone)}
		}
	}
	return nil
}

// inOtherZone returns a holder, or an older request with a slot kept free, in another zone; nil if there is none. If the
// rule is new, the holders may be of several zones.
func (d *decision) inOtherZone(node Node) *Holder {
	for _, h := range d.held {
		if h.Node != "" && h.Zone != node.Zone {
			return &h
		}
	}
	if d.zoneHolder != nil && d.zoneHolder.Zone != node.Zone {
		return d.zoneHolder
	}
	return nil
}

// reserve keeps a slot free for a request.
func (d *decision) reserve(r Request) {
	d.reserved = append(d.reserved, r.ID)
	if node, isNode := d.nodes[r.ID]; isNode && d.zoneHolder == nil {
		d.zoneHolder, d.turn = &Holder{Client: r.Client, Node: node.Name, Zone: node.Zone}, d.requests
	}
}

// mostNamed bounds how many names a message has.
const mostNamed = 5

func names(holders []Holder) string {
	var all []string
	for _, h := range holders {
		all = append(all, fmt.Sprintf("%s since %s", h.ID, clock(h.Since.Time)))
	}
	return few.Names(all, mostNamed)
}

func clock(at time.Time) string { return at.UTC().Format(time.RFC3339) }
