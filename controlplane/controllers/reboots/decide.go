package reboots

import (
	"cmp"
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
	Blocked map[string]Blocked // by name of the pod
	// Restored reports that the store went back to an earlier state. A host that reboots may have had a slot
	// that the record does not have any more. Started reports that this server has just started, or has not reached
	// the store for a while, and would not know of that: such a host counts as one that has a slot.
	Restored, Started bool
	// Confirmed is the moment up to which all changes of Nodes are known. Due is from the decision before. A request
	// gets a slot if it was due before Confirmed, or if Due is nil.
	Confirmed time.Time
	Due       map[string]Due
	Object    func(group string) string // returns KIND/NAME of a group's object
}

// nodes returns the Nodes in the format of package slots.
func (f Facts) nodes(held map[string]*holding) slots.Nodes {
	nodes := make(slots.Nodes, len(f.Hosts))
	for name, h := range f.Hosts {
		n := h.Node
		n.Slotless = (f.Started || f.Restored) && f.slotless(h, held)
		nodes[name] = n
	}
	return nodes
}

// Due is since when requests of a group wait for nothing but the confirmation of Nodes, by the ID of the client.
type Due map[string]time.Time

// due returns the requests of a group that are due.
func (f Facts) due(group string) Due {
	if due, decided := f.Due[group]; decided || f.Due == nil {
		return due
	}
	return Due{}
}

// Decision has the actions that are due now, and the reasons.
type Decision struct {
	Changes   []Change
	Answers   []Answer
	Evictions []Eviction
	// Verdicts are the decisions about waiting requests, by group.
	Verdicts map[string][]slots.Verdict
	// Due is since when requests are due, by group.
	Due map[string]Due
	// Emptying has the Nodes that are being emptied, by name.
	Emptying map[string]Emptying
	// Next is when the decision may change although the facts do not; zero if never.
	Next time.Time
}

// Step describes a part of an action for people.
type Step struct{ Action, Reason string }

// Decide returns the actions that are due now.
func Decide(f Facts, now time.Time) Decision {
	d := Decision{Verdicts: map[string][]slots.Verdict{}, Due: map[string]Due{}, Emptying: map[string]Emptying{}}
	held := f.held()
	nodes, ahead := f.nodes(held), outlook{waits: map[string]*slots.Wait{}, groups: map[string]slots.State{}}
	for _, group := range slices.Sorted(maps.Keys(f.Policies)) {
		k, p := f.Groups[group], f.Policies[group]
		k.State = k.Beside(f.others(group))
		k.Confirm(f.Confirmed, f.due(group))
		c, after := f.change(k, p, nodes, held, now)
		if k.Err != nil {
			after = k.State
		} else if len(c.Steps) > 0 {
			d.Changes = append(d.Changes, c)
		}
		d.judge(group, k.State.Plan(p, nodes, now, ""), f.due(group), now)
		ahead.add(after, p, nodes, now)
	}
	for _, name := range slices.Sorted(maps.Keys(f.Hosts)) {
		if h := f.Hosts[name]; h.Request != nil || h.Slot != nil {
			d.answer(f, h, held[name], ahead, now)
		}
	}
	return d
}

// judge records the verdicts of a group, and since when its requests are due. It is called with those that were due
// before.
func (d *Decision) judge(group string, verdicts []slots.Verdict, before Due, now time.Time) {
	d.Verdicts[group], d.Due[group] = verdicts, Due{}
	for _, v := range verdicts {
		unconfirmed := v.Wait != nil && v.Wait.Reason == slots.Unconfirmed
		if unconfirmed {
			d.soon(now.Add(store.ConfirmInterval))
		}
		if v.Wait == nil || unconfirmed {
			d.Due[group][v.ID] = cmp.Or(before[v.ID], now)
		}
	}
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
	detailed, soon := 0, (*slots.Wait)(nil)
	for _, v := range after.Plan(p, nodes, now, "") {
		if v.Type != slots.Agent {
			continue
		}
		if v.Wait != nil && v.Wait.Reason == slots.Unconfirmed {
			soon = v.Wait // it gets a slot in a moment: the answers of younger ones name the holder then
		}
		if soon != nil {
			v.Wait = soon
		} else if v.Wait != nil && v.Wait.Reason != slots.Paused {
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
	// Adopted are hosts that reboot, and whose slots a restored record does not have.
	Adopted []slots.Client
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
		case o.Node == "", there && host.UID == "": // a Node that was never read: its host may be down, and keeps the slot
		case !there || host.UID != o.UID:
			c.Deleted = append(c.Deleted, o)
		case o.Type == slots.Agent:
			c.free(host, &holding{o, p.Group, k.Version}, now)
		}
	}
	c.Adopted, c.Requests = f.adopted(p.Group, held), f.requests(p.Group, held)
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

// adopted returns the hosts of a group that reboot, and hold no slot in a restored record. A host whose release the
// restored Node does not show, or whose reboot a person requested for now, may be among them: it then only makes others
// wait.
func (f Facts) adopted(group string, held map[string]*holding) (clients []slots.Client) {
	if !f.Restored || f.unsure() {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(f.Hosts)) {
		h := f.Hosts[name]
		if h.Group == group && f.slotless(h, held) && !h.Unseen {
			clients = append(clients, slots.Client{ID: name, Type: slots.Agent, Reason: h.Request.Reason, Request: h.Request.ID})
		}
	}
	return clients
}

// slotless reports whether a host reboots without a slot of any group. If a FleetLock client has the slot of the host's
// name, the host does not lack one.
func (f Facts) slotless(h Host, held map[string]*holding) bool {
	state := f.Groups[h.Group].State
	return h.reboots() && held[h.Name] == nil && state.Holder(h.Name) == nil
}

// awaited returns the hosts of a group that may reboot without a slot in a restored record, by name.
func (f Facts) awaited(group string, held map[string]*holding) (names []string) {
	if !f.Restored {
		return nil
	}
	for _, c := range f.adopted(group, held) {
		names = append(names, c.ID)
	}
	for name, h := range f.Hosts {
		if h.Group == group && h.Unseen && held[name] == nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
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
	for _, a := range change.Adopted {
		s.Adopt(a, nodes, now)
	}
	s.UpdateQueue(change.Requests, p, nodes, now)
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
	for _, a := range change.Adopted {
		add("give a slot to "+a.ID+", request "+a.Request, "it reboots already, and the restored record does not have its slot")
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

// soon makes Next no later than at.
func (d *Decision) soon(at time.Time) {
	if !at.IsZero() && (d.Next.IsZero() || at.Before(d.Next)) {
		d.Next = at
	}
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
