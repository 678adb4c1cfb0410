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
	CPUs        probe.CPUs // the granted part of Machine.CPUs
	PIDs        probe.PIDs
	Filesystems []Filesystem
	Network     probe.Network
	Stalls      []probe.Stall // of the resources that Policy.PSI has limits for

	// RuntimesQueried reports that the search for runtimes has ended and each one was queried once.
	// Until then Ready keeps its state.
	RuntimesQueried bool
	Runtimes        []runtime.Health
	// Unreachable are runtimes that do not answer while their containers run. Ready ignores them, but
	// a shutdown cuts these containers off.
	Unreachable []runtime.Health
	// DeadSockets are the paths where a runtime's socket is but none answers.
	DeadSockets []string
	Images      []runtime.Image // of all runtimes, in any order; not changed

	Draining Draining
	Shutdown Shutdown

	Custom []Custom // unique by type
}

// Filesystem is a measured filesystem with its role. A filesystem with two roles is listed twice.
type Filesystem struct {
	Role Role
	probe.Filesystem
}

// Role is the use of a filesystem.
type Role int

// The roles that have thresholds.
const (
	RoleNode  Role = iota // the host's own state and the pods' writable data
	RoleImage             // images and the containers' writable layers
	RoleStart             // other files of a pod's start: the runtime's state, logs, temporary files
)

// String returns "node", "image" or "start".
func (r Role) String() string { return [...]string{"node", "image", "start"}[r] }

// Draining reports that the host's pods are being stopped.
type Draining struct {
	Active bool
	Reason string    // for people, such as "reboot asked by root"; may be empty
	Since  time.Time // zero if not known
}

// Shutdown is the state of the shutdown guard.
type Shutdown struct {
	State  string // Disarmed, Armed, Draining, Released or Delegated; empty if not known yet
	Reason string // a sentence on why, such as "no logind on the system bus"
	// Fault is the condition's reason for being Disarmed, where one is known that
	// says more than ReasonDisarmed.
	Fault string
	// Granted is the delay that the init system grants, zero if unknown. Needed is the time of the
	// phases. Shortage says why less is granted, with the fix; empty if enough is.
	Granted, Needed time.Duration
	Shortage        string
	// Untimed are the phases that are configured to have no time.
	Untimed []string
}
