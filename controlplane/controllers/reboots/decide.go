package reboots

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controllers/podcache"
	"hostler.io/hostler/controlplane/slots"
	"hostler.io/hostler/controlplane/store"
)

// These are the shortest times between two messages on a Node with the same meaning.
const (
	refreshWaiting  = 10 * time.Second
	refreshEmptying = time.Minute
)

// mostDetailed is how many waiting agents of a group get a message that names other hosts. Each change of a slot
// changes all these messages.
const mostDetailed = 10

// Facts are what Decide needs to know of a fleet.
type Facts struct {
	Hosts    map[string]Host
	Policies Policies
	Groups   map[string]slots.Known
	// Pods returns the pods of a Node, or why they are not known. It is nil if the store cannot evict pods.
	Pods    func(node string) ([]podcache.Pod, error)
	Blocked map[string]Blocked        // by name of the pod
	Object  func(group string) string // returns KIND/NAME of a group's object
}

// nodes returns the Nodes in the format of package slots.
func (f Facts) nodes() slots.Nodes {
	nodes := make(slots.Nodes, len(f.Hosts))
	for name, h := range f.Hosts {
		nodes[name] = h.Node
	}
	return nodes
}

// Decision has the actions that are due now, and the reasons.
type Decision struct {
	Changes   []Change
	Answers   []Answer
	Evictions []Eviction
	// Verdicts are the decisions about waiting requests, by group.
	Verdicts map[string][]slots.Verdict
	// Emptying has the Nodes that are being emptied, by name.
	Emptying map[string]Emptying
	// Next is when the decision may change although the facts do not; zero if never.
	Next time.Time
}

// Step describes a part of an action for people.
type Step struct{ Action, Reason string }

// Decide returns the actions that are due now.
func Decide(f Facts, now time.Time) Decision {
	d := Decision{Verdicts: map[string][]slots.Verdict{}, Emptying: map[string]Emptying{}}
	nodes, held, ahead := f.nodes(), f.held(), outlook{waits: map[string]*slots.Wait{}, groups: map[string]slots.State{}}
	for _, group := range slices.Sorted(maps.Keys(f.Policies)) {
		k, p := f.Groups[group], f.Policies[group]
		k.State = k.Beside(f.others(group))
		c, after := f.change(k, p, nodes, held, now)
		if k.Err != nil {
			after = k.State
		} else if len(c.Steps) > 0 {
			d.Changes = append(d.Changes, c)
		}
		d.Verdicts[group] = k.State.Plan(p, nodes, now, "")
		ahead.add(after, p, nodes, now)
	}
	for _, name := range slices.Sorted(maps.Keys(f.Hosts)) {
		if h := f.Hosts[name]; h.Request != nil || h.Slot != nil {
			d.answer(f, h, held[name], ahead, now)
		}
	}
	return d
}

// outlook is the state of all requests after the due changes of the groups. Answers on Nodes are for that
// state, so that each is written only once.
type outlook struct {
	waits  map[string]*slots.Wait // waits of agents by Node; nil for an agent that gets a slot
	groups map[string]slots.State
}

// add adds a group in its state after the change.
func (o outlook) add(after slots.State, p slots.Policy, nodes slots.Nodes, now time.Time) {
	o.groups[p.Group] = after
	for _, h := range after.Holders {
		if h.Type == slots.Agent {
			o.waits[h.ID] = nil
		}
	}
	detailed := 0
	for _, v := range after.Plan(p, nodes, now, "") {
		if v.Type != slots.Agent {
			continue
		}
		if v.Wait != nil && v.Wait.Reason != slots.Paused {
			if detailed++; detailed > mostDetailed {
				v.Wait = &slots.Wait{Reason: slots.Queued, Message: slots.OlderFirst}
			}
		}
		o.waits[v.ID] = v.Wait
	}
}

// others returns the States of all groups but one.
func (f Facts) others(group string) map[string]slots.State {
	states := map[string]slots.State{}
	for name := range f.Policies {
		if name != group {
			states[name] = f.Groups[name].State
		}
	}
	return states
}

// Change adds requests to a group, gives slots, and frees slots that are not needed any more.
type Change struct {
	Group    string
	Deleted  []slots.Holder // holders whose Nodes were deleted
	Done     []slots.Holder // holders that do not need their slots any more
	Released []slots.Holder // holders whose slots a person has released on a server that has stopped
	// Requests are the requests of all agents in the group.
	Requests []slots.AgentRequest
	Steps    []Step
	object   string
	version  string
}

// Object implements executor.Action.
func (change Change) Object() string { return change.object }

// Version implements executor.Action.
func (change Change) Version() string { return change.version }

// change returns the change that is due for a group, and the state of the group after it.
func (f Facts) change(k slots.Known, p slots.Policy, nodes slots.Nodes, held map[string]*holding, now time.Time) (Change, slots.State) {
	c := Change{Group: p.Group, object: f.Object(p.Group)}
	for _, o := range k.Holders {
		host, there := f.Hosts[o.Node]
		switch {
		case o.Node == "":
		case !there || host.UID != o.UID:
			c.Deleted = append(c.Deleted, o)
		case o.Type == slots.Agent:
			c.free(host, &holding{o, p.Group, k.Version}, now)
		}
	}
	c.Requests = f.requests(p.Group, held)
	before, after := k.State, k.State
	granted := c.apply(&after, p, nodes, "", now)
	c.note(before, after, granted)
	c.version = k.Version
	for _, s := range c.Steps {
		c.version += "; " + s.Action
	}
	return c, after
}

// free adds a slot to those that the change frees, if its Node says that it has ended.
func (change *Change) free(h Host, o *holding, now time.Time) {
	switch h.frees(o, now) {
	case slots.GivenBack:
		change.Done = append(change.Done, o.Holder)
	case slots.Released:
		change.Released = append(change.Released, o.Holder)
	}
}

// requests returns the requests of the agents in a group, in the order in which this server first saw them.
func (f Facts) requests(group string, held map[string]*holding) []slots.AgentRequest {
	var hosts []Host
	for _, h := range f.Hosts {
		if h.Group == group && h.asks() && !h.holds(held[h.Name]) {
			hosts = append(hosts, h)
		}
	}
	slices.SortFunc(hosts, func(a, b Host) int {
		return cmp.Or(a.Seen.Compare(b.Seen), a.Request.Wanted.Compare(b.Request.Wanted.Time), strings.Compare(a.Name, b.Name))
	})
	requests := make([]slots.AgentRequest, 0, len(hosts))
	for _, h := range hosts {
		requests = append(requests, slots.AgentRequest{
			Client: slots.Client{ID: h.Name, Type: slots.Agent, Reason: h.Request.Reason, Request: h.Request.ID},
			Paused: h.Request.Step == controlplane.RebootWanted || h.Dead,
		})
	}
	return requests
}

// apply applies the change to a group, and returns the agents that got a slot.
func (change Change) apply(s *slots.State, p slots.Policy, nodes slots.Nodes, self string, now time.Time) (granted []slots.Client) {
	for _, o := range change.Deleted {
		s.Free(o, slots.NodeDeleted, self, now)
	}
	for _, o := range change.Done {
		s.Free(o, slots.GivenBack, string(slots.Agent), now)
	}
	for _, o := range change.Released {
		s.Free(o, slots.Released, self, now)
	}
	s.UpdateQueue(change.Requests, now)
	return s.Grant(p, nodes, now)
}

// note lists the steps of the change.
func (change *Change) note(before, after slots.State, granted []slots.Client) {
	add := func(action, reason string) { change.Steps = append(change.Steps, Step{action, reason}) }
	for _, o := range change.Deleted {
		add("free the slot of "+o.ID, "its Node was deleted")
	}
	for _, o := range change.Done {
		add("free the slot of "+o.ID, "its host does not need it any more")
	}
	for _, o := range change.Released {
		add("free the slot of "+o.ID, "a person has released it on a server that has stopped")
	}
	for _, g := range granted {
		add("give a slot to "+g.ID+", request "+g.Request, g.Reason)
	}
	switch {
	case len(change.Steps) > 0:
	case len(after.Waiting) > len(before.Waiting):
		add("record requests", "hosts want to reboot")
	case !reflect.DeepEqual(before, after):
		add("update requests", "hosts have changed or withdrawn them")
	}
}

// Answer changes the slot annotation of a Node, and cordons or uncordons it.
type Answer struct {
	Node          slots.Node
	Slot          *controlplane.RebootSlot // nil to remove the annotation
	Unschedulable bool
	Steps         []Step
	before        Host
	records       []record
}

// Object implements executor.Action.
func (a Answer) Object() string { return store.Nodes.Key(a.Node.Name) }

// Version implements executor.Action.
func (a Answer) Version() string {
	return string(a.Node.UID) + a.before.texts.request + a.before.texts.slot + a.Steps[0].Action + fmt.Sprint(a.records)
}

// answer adds the actions that are due for a Node.
func (d *Decision) answer(f Facts, h Host, held *holding, ahead outlook, now time.Time) {
	next := f.slot(h, held, ahead)
	if next != nil && next.Why != lost && next.Why != over && h.Request != nil && h.Request.Step == controlplane.RebootDraining {
		e := f.empty(h, *next, now)
		next = &e.Slot
		if h.Request.EmptiedByServer {
			d.Emptying[h.Name] = e
		}
		d.Evictions = append(d.Evictions, e.Evict...)
		d.soon(e.Next)
	}
	a := Answer{Node: h.Node, Slot: next, Unschedulable: h.Unschedulable, before: h, records: f.records(h, held, next)}
	had, has := h.Slot != nil && h.Slot.Cordoned, next != nil && next.Cordoned
	if had != has {
		a.Unschedulable = has
	}
	due, at := differ(h, next, now)
	d.soon(at)
	if held != nil && h.ended(held) {
		d.soon(h.SlotSince.Add(completeTime))
	}
	if due || a.Unschedulable != h.Unschedulable {
		a.Steps = []Step{stepOf(h, next)}
		d.Answers = append(d.Answers, a)
	}
}

// soon makes Next no later than at.
func (d *Decision) soon(at time.Time) {
	if !at.IsZero() && (d.Next.IsZero() || at.Before(d.Next)) {
		d.Next = at
	}
}

// slot returns the answer that must be on the Node of a host.
func (f Facts) slot(h Host, held *holding, ahead outlook) *controlplane.RebootSlot {
	r := h.Request
	_, known := f.Policies[h.groupOf()]
	_, configured := f.Policies[h.Group]
	switch {
	case h.Err != nil:
		return h.Slot
	case held != nil && held.UID == h.UID:
		return h.mirror(held)
	case r == nil || !r.Step.NeedsSlot():
		return nil
	case h.Slot != nil && h.Slot.Granted != nil && (!known || f.unsure()):
		return h.Slot // the host keeps its slot if the group is not configured or cannot be read
	}
	if r.Step != controlplane.RebootWaiting {
		return without(h)
	}
	slot := &controlplane.RebootSlot{ID: r.ID}
	state := ahead.groups[h.Group]
	switch wait, waiting := ahead.waits[h.Name]; {
	case !configured:
		slot.Why, slot.Message = "group", "no group "+h.Group+" is configured on the servers"
	case !waiting || wait == nil && state.Holder(h.Name) != nil && !h.asksFor(state.Holder(h.Name)): // another request of the host has the slot
		w := state.WaitOf(h.Name)
		slot.Why, slot.Message = whyOf(w), w.Message
	case wait != nil:
		slot.Why, slot.Message = whyOf(*wait), wait.Message
	case h.Slot == nil || h.Slot.ID == r.ID && h.Slot.Granted == nil:
		return h.Slot // the host will get a slot
	}
	return slot
}

// whyOf is the Why of a waiting host. It is the same for all hosts that wait for others. The message says which
// others those are, and whether the request of this host is recorded.
func whyOf(w slots.Wait) string {
	switch w.Reason {
	case slots.Full, slots.Queued, slots.QueueFull, slots.OtherZone:
		return "turn"
	case slots.Unavailable:
		return "notReady"
	case slots.Paused:
		return "paused"
	}
	return "client"
}

// without is the answer for a host that reboots without a slot: the slot was released, or a person requested
// the reboot for now.
func without(h Host) *controlplane.RebootSlot {
	same := h.Slot != nil && h.Slot.ID == h.Request.ID
	switch {
	case same && (h.Slot.Granted != nil || h.Slot.Why == lost):
		slot := lose(*h.Slot)
		slot.Cordoned = slot.Cordoned && isDown(h.Request.Step)
		return &slot
	case !h.Request.EmptiedByServer || !mayBeCordoned(h.Request.Step):
		return nil
	case same && (h.Slot.Emptied || h.Slot.Failed || h.Slot.Cordoned):
		slot := *h.Slot
		return &slot
	}
	return &controlplane.RebootSlot{ID: h.Request.ID}
}

// unsure reports whether a group could not be read, so that not all holders are known.
func (f Facts) unsure() bool {
	for group := range f.Policies {
		if f.Groups[group].Err != nil {
			return true
		}
	}
	return false
}

// mayBeCordoned reports whether the server may have cordoned the Node for the reboot.
func mayBeCordoned(s controlplane.RebootStep) bool {
	return s == controlplane.RebootDraining || isDown(s)
}

// isDown reports whether the host may be down.
func isDown(s controlplane.RebootStep) bool {
	return s == controlplane.RebootRebooting || s == controlplane.RebootVerifying
}

// differ reports whether the answer on a Node must be written now, or else when.
func differ(h Host, next *controlplane.RebootSlot, now time.Time) (bool, time.Time) {
	if h.Slot == nil || next == nil {
		return h.Slot != next, time.Time{}
	}
	was, is := *h.Slot, *next
	was.Message, is.Message = "", ""
	switch {
	case was.ID != is.ID || was.Slot != is.Slot || was.Why != is.Why || !was.Granted.Equal(is.Granted) || was.Emptied != is.Emptied || was.Failed != is.Failed || was.Cordoned != is.Cordoned:
		return true, time.Time{}
	case h.Slot.Message == next.Message:
		return false, time.Time{}
	}
	at := h.SlotSince.Add(refreshWaiting)
	if next.Cordoned || next.Granted != nil {
		at = h.SlotSince.Add(refreshEmptying)
	}
	return !at.After(now), at
}

// stepOf describes an answer.
func stepOf(h Host, next *controlplane.RebootSlot) Step {
	was := h.Slot
	if was == nil {
		was = &controlplane.RebootSlot{}
	}
	switch {
	case next == nil && was.Cordoned:
		return Step{"uncordon the Node, and remove the answer to its host", "the reboot is done, or was given up"}
	case next == nil:
		return Step{"remove the answer to the host", "it needs no slot any more"}
	case was.Cordoned && !next.Cordoned:
		return Step{"uncordon the Node", "it is not being emptied any more"}
	case !was.Failed && next.Failed:
		return Step{"report that the Node cannot be emptied", next.Message}
	case !was.Emptied && next.Emptied:
		return Step{"report that the Node is empty", "no pod has to leave it any more"}
	case !was.Cordoned && next.Cordoned:
		return Step{"cordon the Node", "its host reboots: " + h.Request.Reason}
	case was.Granted == nil && next.Granted != nil:
		return Step{"report the slot to the host", h.Request.Reason}
	case next.Why == over:
		return Step{"report that the slot has ended", next.Message}
	}
	return Step{"report to the host why it waits", next.Message}
}
