package status

import (
	"time"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/status/probe"
)

// Facts are the last measured facts from which a Node is built. The agent sets them. A part that
// was not measured is zero, and conditions that depend on it become Unknown.
type Facts struct {
	Machine     probe.Machine
	Memory      probe.Memory
	CPUs        probe.CPUs // the granted part of Machine.CPUs
	PIDs        probe.PIDs
	Filesystems []Filesystem
	Network     probe.Network
	Stalls      []probe.Stall // of the resources with a limit in Policy.PSI

	// RuntimesQueried is true once the search for runtimes has ended and each runtime was queried.
	// Until then, Ready keeps its status.
	RuntimesQueried bool
	Runtimes        []runtime.Health
	// Unreachable are runtimes that do not answer while their containers run. Ready ignores them,
	// but a shutdown would kill these containers.
	Unreachable []runtime.Health
	Missing     Missing
	Images      []runtime.Image // of all runtimes, unsorted; never modified

	Draining Draining
	Shutdown Shutdown

	Custom []Custom // unique by type
}

// Missing is what has not answered.
type Missing struct {
	Sockets []string // paths of runtime sockets on which no runtime answers
	// Filesystems is true while no runtime has listed its image filesystems since the start. Until then, Ready keeps its
	// status.
	Filesystems bool
	// Checks is true while the folder of custom checks has not been read since the start. Until then, their conditions
	// stay.
	Checks bool
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
	RoleNode  Role = iota // the host's state and the pods' writable data
	RoleImage             // images and the containers' writable layers
	RoleStart             // other files written when a pod starts: the runtime's state, logs, temporary files
)

// String returns "node", "image" or "start".
func (r Role) String() string { return [...]string{"node", "image", "start"}[r] }

// Draining says whether the host's pods are being stopped.
type Draining struct {
	Active bool
	Reason string    // for messages, such as "reboot asked by root"; may be empty
	Since  time.Time // zero if unknown
}

// Shutdown is the state of the shutdown guard.
type Shutdown struct {
	State  string // Disarmed, Armed, Draining, Released or Delegated; empty if unknown
	Reason string // a sentence, such as "no logind on the system bus"
	// Fault is a reason for the condition that is more precise than ReasonDisarmed, if there is
	// one.
	Fault string
	// Granted is the delay that the init system grants, zero if unknown. Needed is the total time
	// of the phases. Shortage says why Granted is less than Needed, with the fix; it is empty if
	// Granted is enough.
	Granted, Needed time.Duration
	Shortage        string
	// Untimed are the phases with a configured time of zero.
	Untimed []string
}
