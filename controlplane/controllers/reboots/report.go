package reboots

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"hostler.io/hostler/controlplane/controllers/executor"
	"hostler.io/hostler/controlplane/slots"
)

// longHeld is how long a reboot may take before it counts as a problem.
const longHeld = time.Hour

// Report is the state of the controller, for people and metrics. It is immutable.
type Report struct {
	executor.Report
	Decision
	Groups []Group
	Broken map[string]error // errors of invalid requests, by Node
	Unread error            // why the Nodes are not known; nil if they are
}

// Group is a group from its last read.
type Group struct {
	slots.Policy
	slots.State
	Object   string
	Err      error // error of the last read; nil if it succeeded
	Members  int   // number of Nodes in the group
	NotReady []string
	Verdicts []slots.Verdict // decisions about the waiting requests
	// Unrecorded is how many more hosts wait, for whom the queue has no place.
	Unrecorded int
	// WithoutSlot are the hosts that are rebooting and hold no slot, by name.
	WithoutSlot []Host
	// Awaited are the hosts that may reboot without a slot, because the store was restored, by name.
	Awaited []string

	hosts    map[string]Host // hosts of the fleet by name; nil before the first list
	emptying map[string]Emptying
}

// Report returns the groups, and the state of the execution.
func (c *Controller) Report() Report {
	now := time.Now()
	r := Report{Report: c.Executor.Report(), Broken: map[string]error{}}
	f, err := c.facts(now)
	if err == nil {
		r.Decision = Decide(f, now)
	} else {
		r.Waits = cmp.Or(r.Waits, err.Error())
	}
	if f.Hosts == nil {
		r.Unread = err
	}
	held := f.held()
	nodes := f.nodes(held)
	for _, name := range slices.Sorted(maps.Keys(f.Policies)) {
		k := f.Groups[name]
		g := Group{Policy: f.Policies[name], State: k.State, Object: c.groups.Object(name), Err: k.Err, Verdicts: r.Verdicts[name], Awaited: f.awaited(name, held), hosts: f.Hosts, emptying: r.Emptying}
		g.Members, g.NotReady = k.State.Members(name, nodes)
		for _, request := range f.requests(name, held) {
			if g.Request(request.ID) == nil {
				g.Unrecorded++
			}
		}
		if !f.unsure() {
			g.WithoutSlot = f.withoutSlot(name, held)
		}
		r.Groups = append(r.Groups, g)
	}
	for name, h := range f.Hosts {
		_, configured := f.Policies[h.Group]
		switch {
		case h.Err != nil:
			r.Broken[name] = fmt.Errorf("the request to reboot cannot be read: %w", h.Err)
		case h.asks() && !configured:
			r.Broken[name] = fmt.Errorf("the host requests a slot of group %q, which is not in `reboots.groups`", h.Group)
		}
	}
	return r
}

// withoutSlot returns the hosts of a group that are rebooting and hold no slot.
func (f Facts) withoutSlot(group string, held map[string]*holding) (list []Host) {
	for _, name := range slices.Sorted(maps.Keys(f.Hosts)) {
		if h := f.Hosts[name]; h.Group == group && h.Err == nil && h.Request != nil && h.Request.Step.NeedsSlot() && !h.asks() && !h.holds(held[name]) {
			list = append(list, h)
		}
	}
	return list
}

// WhyWithout says why a host that is rebooting holds no slot.
func (h Host) WhyWithout() string {
	if h.released() {
		return "it holds no slot: the slot was released"
	}
	return "it holds no slot: the reboot was requested with --now"
}

// host returns the host of a holder or request; nil if it is not known.
func (g Group) host(name string, request string) *Host {
	if h, there := g.hosts[name]; there && h.Request != nil && h.Request.ID == request {
		return &h
	}
	return nil
}

// Step is the current step of a holder's reboot; empty if it is not known.
func (g Group) Step(o slots.Holder) string {
	if h := g.host(o.Node, o.Client.Request); h != nil {
		return string(h.Request.Step)
	}
	return ""
}

// WaitsFor says what the reboot of a holder waits for; empty if that is not known. Only the leader knows which
// pods cannot be evicted now. On other servers, it is the message that the leader last wrote on the Node.
func (g Group) WaitsFor(o slots.Holder) string {
	h := g.host(o.Node, o.Client.Request)
	switch {
	case h == nil:
		return ""
	case len(g.emptying[o.Node].Blocked) > 0:
		return g.emptying[o.Node].Slot.Message
	case h.Slot != nil && h.Slot.Message != "":
		return h.Slot.Message
	}
	return h.Request.Message
}

// Why says why a request waits.
func (g Group) Why(v slots.Verdict) string {
	h := g.host(v.ID, v.Client.Request)
	switch {
	case v.Wait == nil && v.Type == slots.Agent:
		return "it gets a slot now"
	case v.Wait == nil:
		return "a slot is kept free for it until it repeats its request"
	case v.Wait.Reason == slots.Paused && h != nil && h.Dead:
		return "its host gives no sign of life"
	case v.Wait.Reason == slots.Paused && h != nil && h.Request.Message != "":
		return v.Wait.Message + ": " + h.Request.Message
	}
	return v.Wait.Message
}

// Note describes the Node of a holder; empty if it has none, or Nodes are not known.
func (g Group) Note(h slots.Holder) string {
	if h.Node == "" || g.hosts == nil {
		return ""
	}
	host, there := g.hosts[h.Node]
	state := "not Ready"
	if host.Ready {
		state = "Ready"
	}
	switch {
	case !there || host.UID != h.UID:
		return "its Node was deleted"
	case host.BootID != h.BootID && h.BootID != "":
		return fmt.Sprintf("its Node is %s, and has booted since", state)
	}
	return fmt.Sprintf("its Node is %s, and has not booted since", state)
}

// Late reports whether a holder has had its slot for too long, so that a person should check.
func Late(h slots.Holder, now time.Time) bool { return now.Sub(h.Since.Time) > longHeld }
