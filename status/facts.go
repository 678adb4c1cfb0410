package status

import (
	"time"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/status/probe"
)

// Facts is everything a Node is made from, as last measured. The agent fills it
// in; a part it has not measured stays zero and turns what depends on it Unknown.
type Facts struct {
	Machine     probe.Machine
	Memory      probe.Memory
	CPUs        probe.CPUs // what is granted of Machine.CPUs
	PIDs        probe.PIDs
	Filesystems []Filesystem
	Network     probe.Network
	Stalls      []probe.Stall // of the resources that Policy.PSI has limits for

	// RuntimesQueried reports that the search for runtimes is over and each one
	// found was asked once. Until then Ready stays what it was before.
	RuntimesQueried bool
	Runtimes        []runtime.Health
	// Unreachable are runtimes that were searched for and do not answer, while containers of
	// theirs run: Ready does not request them, but a shutdown cuts these off.
	Unreachable []runtime.Health
	// DeadSockets are the paths where a runtime's socket is but none answers.
	DeadSockets []string
	Images      []runtime.Image // of all runtimes, in any order; not changed

	Draining Draining
	Shutdown Shutdown

	Custom []Custom // by their types, each of which stands once
}

// Filesystem is a measured filesystem and what the host uses it for. One that
// serves two roles is listed twice.
type Filesystem struct {
	Role Role
	probe.Filesystem
}

// Role is what a filesystem holds.
type Role int

// The roles that have thresholds.
const (
	RoleNode  Role = iota // the host's own state and the pods' writable data
	RoleImage             // images and the containers' writable layers
	RoleStart             // what a pod's start writes beside: the runtime's state, logs, temporary files
)

// String returns "node", "image" or "start".
func (r Role) String() string { return [...]string{"node", "image", "start"}[r] }

// Draining reports that the host's pods are being stopped.
type Draining struct {
	Active bool
	Reason string    // for people, such as "reboot asked by root"; may be empty
	Since  time.Time // zero if not known
}

// Shutdown is what the shutdown guard says of itself.
type Shutdown struct {
	State  string // Disarmed, Armed, Draining, Released or Delegated; empty if it has not said yet
	Reason string // a sentence on why, such as "no logind on the system bus"
	// Fault is the condition's reason for being Disarmed, where one is known that
	// says more than ReasonDisarmed.
	Fault string
	// Granted is the longest delay that the init system grants, zero if that is
	// not known; Needed what the phases take. Shortage says, with the hint, why
	// less is granted; empty where enough is.
	Granted, Needed time.Duration
	Shortage        string
	// Untimed are the phases that are configured to have no time.
	Untimed []string
}
