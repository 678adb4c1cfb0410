package reboots

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"hostler.io/hostler/controlplane/controllers/executor"
	"hostler.io/hostler/controlplane/slots"
)

// longHeld is how long a reboot may take before its holder is a problem.
const longHeld = time.Hour

// Report is what the controller does, for people and metrics. It does not change.
type Report struct {
	executor.Report
	Groups []Group
}

// Group is a group as it was read last.
type Group struct {
	slots.Policy
	slots.State
	Object   string
	Err      error // why it could not be read
	Members  int   // Nodes of the group
	NotReady []string
	Verdicts []slots.Verdict // of the requests that wait
	Deleted  Change          // the slots that the leader frees
	Nodes    slots.Nodes     // of the fleet; nil before they are known
}

// Report returns the groups, and how the execution goes.
func (c *Controller) Report() Report {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := Report{Report: c.Executor.Report()}
	for _, name := range slices.Sorted(maps.Keys(c.policies)) {
		p, k := c.policies[name], c.known[name]
		g := Group{Policy: p, State: k.state, Object: c.groups.Object(name), Err: k.err, Nodes: c.all}
		if c.all != nil {
			g.Members, g.NotReady = k.state.Members(name, c.all)
			g.Verdicts = k.state.Plan(p, c.all, time.Now(), "")
			g.Deleted = Change{name, deleted(k.state.Holders, c.all), g.Object}
		}
		r.Groups = append(r.Groups, g)
	}
	return r
}

// Note says what is known of a holder beside its slot; empty if nothing is.
func (g Group) Note(h slots.Holder) string {
	if h.Node == "" || g.Nodes == nil {
		return ""
	}
	node, there := g.Nodes[h.Node]
	state := "not Ready"
	if node.Ready {
		state = "Ready"
	}
	switch {
	case !there || node.UID != h.UID:
		return "its Node was deleted"
	case node.BootID != h.BootID && h.BootID != "":
		return fmt.Sprintf("its Node is %s, and has booted since", state)
	}
	return fmt.Sprintf("its Node is %s, and has not booted since", state)
}

// Late reports whether a holder has its slot for so long that somebody should see why.
func Late(h slots.Holder, now time.Time) bool { return now.Sub(h.Since.Time) > longHeld }
