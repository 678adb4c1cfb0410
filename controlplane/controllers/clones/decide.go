// Package clones finds running hosts that have the same machine ID, because one was cloned from the
// other, and names them on their Nodes. It changes nothing else: hosts report it and people fix it.
//
// Decide is pure: `hostler fleet plan` prints what the controller executes.
package clones

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/store"
	"hostler.io/hostler/internal/few"
)

// settle is how long two hosts must both have been alive before they are compared. A renamed host
// leaves a Node behind that looks alive until its Lease ends.
const settle = time.Minute

// Host has the facts of one Node that a decision needs.
type Host struct {
	Name              string
	UID               types.UID
	MachineID, BootID string
	// Alive is false for a Node that is Unknown, or without a status.
	Alive bool
	// Since is when this server first saw the host alive in this boot and with this machine ID.
	Since time.Time
	// Reported is when this server last saw a new status of the host; zero if there was none after
	// Since.
	Reported time.Time
	Stored   string // value of the annotation
}

// Decision is what to change.
type Decision struct {
	Groups []Group
	Now    []Change // by Node
}

// Group are the names of running hosts with one machine ID, sorted.
type Group []string

// Message describes the problem.
func (g Group) Message() string {
	return fmt.Sprintf("the running hosts %s have the same machine ID: one was cloned from the other", few.Names(g, controlplane.MostClones))
}

// Change is a new value of the annotation. It is written only if the Node is still of that machine
// and boot.
type Change struct {
	Node              string
	UID               types.UID
	MachineID, BootID string
	Before, Value     string // empty if there is no annotation
}

// Object implements executor.Action.
func (c Change) Object() string { return store.Nodes.Key(c.Node) }

// Version implements executor.Action.
func (c Change) Version() string { return c.Before }

// Action describes the change.
func (c Change) Action() string {
	if c.Value == "" {
		return "remove annotation " + controlplane.AnnotationSameMachine
	}
	return fmt.Sprintf("set annotation %s=%s", controlplane.AnnotationSameMachine, c.Value)
}

// Reason returns the cause of the change.
func (c Change) Reason() string {
	if c.Value == "" {
		return "no other running host has its machine ID any more"
	}
	return "running hosts have its machine ID"
}

// Decide returns the changes of the annotation on all Nodes.
func Decide(hosts []Host) Decision {
	machines := map[string][]Host{}
	for _, h := range hosts {
		if h.Alive && h.MachineID != "" {
			machines[h.MachineID] = append(machines[h.MachineID], h)
		}
	}
	var d Decision
	named := map[string]string{}
	for _, group := range machines {
		if len(group) < 2 {
			continue
		}
		slices.SortFunc(group, func(a, b Host) int { return strings.Compare(a.Name, b.Name) })
		var found Group
		for i, h := range group {
			if names := partners(group, i); len(names) > 0 {
				named[h.Name] = strings.Join(names, ",")
				found = append(found, h.Name)
			}
		}
		if len(found) > 1 {
			d.Groups = append(d.Groups, found)
		}
	}
	slices.SortFunc(d.Groups, func(a, b Group) int { return slices.Compare(a, b) })
	for _, h := range hosts {
		if value := named[h.Name]; value != h.Stored {
			d.Now = append(d.Now, Change{Node: h.Name, UID: h.UID, MachineID: h.MachineID, BootID: h.BootID, Before: h.Stored, Value: value})
		}
	}
	slices.SortFunc(d.Now, func(a, b Change) int { return strings.Compare(a.Node, b.Node) })
	return d
}

// partners returns the hosts that the Node of group[i] names, at most MostClones. It begins with
// the next host by name. So each of many hosts with one machine ID is named by few others, and few
// Nodes change when it ends.
func partners(group []Host, i int) []string {
	h := group[i]
	var names []string
	if !h.Reported.IsZero() {
		for k := 1; k < len(group) && len(names) < controlplane.MostClones; k++ {
			if other := group[(i+k)%len(group)]; h.runsBeside(other) {
				names = append(names, other.Name)
			}
		}
	}
	// Names that an earlier leader found stay as long as those hosts run.
	for _, name := range controlplane.CloneNames(h.Stored) {
		k, known := slices.BinarySearchFunc(group, name, func(o Host, name string) int { return strings.Compare(o.Name, name) })
		if known && k != i && !h.sameBoot(group[k]) && len(names) < controlplane.MostClones && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// sameBoot reports whether both Nodes are of one boot, such as the Nodes of hostler and of a
// kubelet on one host.
func (h Host) sameBoot(other Host) bool { return h.BootID != "" && h.BootID == other.BootID }

// runsBeside reports whether both ran at the same time, as two machines: each reported its status
// after both had been alive for the settle time.
func (h Host) runsBeside(other Host) bool {
	later := h.Since
	if other.Since.After(later) {
		later = other.Since
	}
	later = later.Add(settle)
	return !h.sameBoot(other) && !h.Reported.Before(later) && !other.Reported.Before(later)
}
