package slots

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"hostler.io/hostler/internal/few"
)

const (
	// repeatTime is how long a slot is kept free for the oldest request before it is repeated. Zincati
	// repeats it every 5 minutes. Of a client that repeats it less often it is twice as long as that.
	repeatTime = 15 * time.Minute
	// forgetTime is when a request that is not repeated loses its place.
	forgetTime = 24 * time.Hour
	// refreshTime is how old Request.Asked may become: not each repetition is a write.
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

// Node is what a decision needs to know of one Node.
type Node struct {
	Name   string
	UID    types.UID
	Zone   string
	BootID string
	Group  string
	Ready  bool
	// Excluded leaves the Node out when Nodes of the group are counted.
	Excluded bool
}

// Nodes are all Nodes by name.
type Nodes map[string]Node

// Why is why a request gets no slot now. The values are those of FleetLock's kind.
type Why string

// The reasons.
const (
	Full        Why = "failed_lock_semaphore_full"
	OtherZone   Why = "failed_lock_other_zone"
	Unavailable Why = "failed_lock_nodes_not_ready"
	Queued      Why = "failed_lock_queued"
	QueueFull   Why = "failed_lock_queue_full"
	Forgotten   Why = "failed_lock_not_repeated"
	Paused      Why = "failed_lock_paused"
	OtherClient Why = "failed_lock_other_client"
)

// Wait says why a request gets no slot now.
type Wait struct {
	Why     Why
	Message string
}

// Verdict is what becomes of a request now.
type Verdict struct {
	Request
	Wait *Wait // nil if it gets a slot, once it is repeated
}

// Ask requests a slot. It returns nil if the client has one now, or had it before. Otherwise the client
// waits, and has to ask again.
func (s *State) Ask(c Client, p Policy, nodes Nodes, now time.Time) *Wait {
	held, waits := s.Holder(c.ID), s.Request(c.ID)
	switch {
	case held != nil && held.By != c.By, waits != nil && waits.By != c.By:
		return &Wait{OtherClient, fmt.Sprintf("the host of this ID has a request by another way than %s: only one may reboot it", c.By)}
	case held != nil:
		return nil
	}
	s.forget(now)
	if wait := s.enter(c, now); wait != nil {
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
	return nil // not reached: it waits
}

// enter has a client wait, unless too many do.
func (s *State) enter(c Client, now time.Time) *Wait {
	c.Reason = Shorten(c.Reason)
	r := s.Request(c.ID)
	switch {
	case r != nil:
		s.Waiting = slices.Clone(s.Waiting)
		s.Request(c.ID).repeat(c, now)
	case len(s.Waiting) >= mostWaiting:
		return &Wait{QueueFull, fmt.Sprintf("%d requests wait already, no more are recorded", len(s.Waiting))}
	default:
		s.Requests++
		s.Waiting = append(slices.Clone(s.Waiting), Request{Client: c, Number: s.Requests, Since: stamp(now), Asked: stamp(now)})
	}
	return nil
}

// repeat takes in that a request is made again.
func (r *Request) repeat(c Client, now time.Time) {
	r.Client = c
	switch past := now.Sub(r.Asked.Time); {
	case past < -maxClockSkew: // of a server whose clock was wrong
		r.Asked = stamp(now)
	case past >= refreshTime:
		r.Asked, r.EverySeconds = stamp(now), int64(past/time.Second)
	}
}

// forget ends requests of FleetLock clients that have stopped asking.
func (s *State) forget(now time.Time) {
	s.Waiting = slices.DeleteFunc(slices.Clone(s.Waiting), func(r Request) bool { return r.By == FleetLock && now.Sub(r.Asked.Time) > forgetTime })
}

// overdue reports whether a request was not repeated in time, so that no slot is kept free for it.
func (r Request) overdue(now time.Time) bool {
	return r.By == FleetLock && now.Sub(r.Asked.Time) > max(repeatTime, 2*time.Duration(r.EverySeconds)*time.Second)
}

// grant gives a slot to a request that waits.
func (s *State) grant(r Request, nodes Nodes, now time.Time) {
	if node, is := nodes[r.ID]; is {
		if !slices.ContainsFunc(s.Holders, func(h Holder) bool { return h.Node != "" }) {
			s.Turn = s.Requests
		}
		s.drop(r.ID)
		s.Holders = append(slices.Clone(s.Holders), Holder{Client: r.Client, Since: stamp(now), Node: node.Name, UID: node.UID, Zone: node.Zone, BootID: node.BootID})
		return
	}
	s.drop(r.ID)
	s.Holders = append(slices.Clone(s.Holders), Holder{Client: r.Client, Since: stamp(now)})
}

// Plan decides for each request that waits, oldest first. A slot is kept free for an older request that gets
// it, unless that was not repeated in time; the request of asking is being repeated.
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
			d.take(r)
		} else if v.Wait.Why == OtherZone && d.barred == "" {
			d.barred = r.ID
		}
		verdicts = append(verdicts, v)
	}
	return verdicts
}

// decision is one in progress.
type decision struct {
	policy   Policy
	nodes    Nodes
	requests int64 // State.Requests
	members  int   // Nodes of the group
	notReady []string
	held     []Holder
	kept     []string // IDs of older requests that get a slot
	zoned    *Holder  // the first with a Node; nil if there is none
	turn     int64
	barred   string // the oldest request that waits for another zone; empty if none does
}

func (s *State) decision(p Policy, nodes Nodes) *decision {
	d := &decision{policy: p, nodes: nodes, held: s.Holders, requests: s.Requests, turn: s.Turn}
	d.members, d.notReady = s.Members(p.Group, nodes)
	for i, h := range s.Holders {
		if h.Node != "" && d.zoned == nil {
			d.zoned = &s.Holders[i]
		}
	}
	return d
}

// Members returns how many Nodes a group has, and which of them are not ready for other reasons than a slot.
func (s *State) Members(group string, nodes Nodes) (all int, notReady []string) {
	for _, n := range nodes {
		if n.Group != group || n.Excluded {
			continue
		}
		all++
		if !n.Ready && !slices.ContainsFunc(s.Holders, func(h Holder) bool { return h.Node == n.Name }) {
			notReady = append(notReady, n.Name)
		}
	}
	slices.Sort(notReady)
	return all, notReady
}

// judge returns why a request gets no slot now; nil if it does.
func (d *decision) judge(r Request) *Wait {
	node, isNode := d.nodes[r.ID]
	others := slices.DeleteFunc(slices.Clone(d.notReady), func(name string) bool { return name == r.ID })
	switch {
	case d.policy.Slots == 0:
		return &Wait{Full, "the group has no slots: its `slots` is 0"}
	case len(d.held) >= d.policy.Slots:
		return &Wait{Full, "all slots of the group are held: " + names(d.held)}
	case len(d.held)+len(d.kept) >= d.policy.Slots:
		return &Wait{Queued, "a slot is kept free for an older request: " + few.Names(d.kept, mostNamed)}
	case d.barred != "" && r.Number > d.turn:
		return &Wait{Queued, "an older request waits for another zone: " + d.barred}
	case len(others) > d.policy.MaxUnavailable.Of(d.members):
		return &Wait{Unavailable, fmt.Sprintf("Nodes of the group that are not ready: %d of %d, `maxUnavailable` is %s: %s", len(others), d.members, d.policy.MaxUnavailable, few.Names(others, mostNamed))}
	case d.policy.OneZoneAtATime && isNode && d.zoned != nil && d.zoned.Zone != node.Zone:
		return &Wait{OtherZone, fmt.Sprintf("hosts of zone %s reboot, such as %s; this one is in zone %s", zone(d.zoned.Zone), d.zoned.ID, zone(node.Zone))}
	}
	return nil
}

// take gives a slot to a request.
func (d *decision) take(r Request) {
	d.kept = append(d.kept, r.ID)
	if node, isNode := d.nodes[r.ID]; isNode && d.zoned == nil {
		d.zoned, d.turn = &Holder{Client: r.Client, Node: node.Name, Zone: node.Zone}, d.requests
	}
}

// mostNamed is how many are named in a message.
const mostNamed = 5

func names(holders []Holder) string {
	var all []string
	for _, h := range holders {
		all = append(all, fmt.Sprintf("%s since %s", h.ID, clock(h.Since.Time)))
	}
	return few.Names(all, mostNamed)
}

func zone(name string) string {
	if name == "" {
		return `""`
	}
	return name
}

func clock(at time.Time) string { return at.UTC().Format(time.RFC3339) }
