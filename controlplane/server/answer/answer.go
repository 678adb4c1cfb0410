// Package answer has the types of the server API's answers. It has no logic, so that the command
// line can use it without the server.
package answer

import (
	"time"

	"hostler.io/hostler/internal/loop"
)

// Status is the state of a server, as printed by `hostler fleet status -o json`.
type Status struct {
	Version   string `json:"version"`
	Candidate string `json:"candidate"` // name of this server in elections
	// Configuration says how the files differ from the effective configuration; null if they do not.
	Configuration *Configuration `json:"configuration,omitempty"`
	Store         Store          `json:"store"`
	Controllers   []Controller   `json:"controllers"`
	Zones         []Zone         `json:"zones"`
	Nodes         int            `json:"nodes"`
	NotReady      int            `json:"notReady"`
	// NotReadyNodes has the names of the first ten Nodes that are not ready.
	NotReadyNodes []string `json:"notReadyNodes"`
	// Heartbeats is null on Kubernetes, and as long as it is unknown.
	Heartbeats *Heartbeats `json:"heartbeats"`
	// Slots are the reboot slots by group. FleetLock counts the answers to its clients by kind.
	Slots     []SlotGroup       `json:"slots"`
	FleetLock map[string]uint64 `json:"fleetLockAnswers"`
	Problems  []Problem         `json:"problems"`
	Loops     []loop.Health     `json:"loops"`
}

// Configuration is how the files of a server differ from the effective configuration.
type Configuration struct {
	// Differs lists the keys whose values in the files are not effective.
	Differs []string `json:"differs,omitempty"`
	Restart bool     `json:"restart,omitempty"` // these keys need a restart, not a reload
	// Fault is the error in the files: the server would not start with them.
	Fault string `json:"fault,omitempty"`
}

// Reload is the answer to a reload: the keys that are effective now.
type Reload struct {
	Changed []string `json:"changed"`
}

// Heartbeats is the duration of Leases, and its reason.
type Heartbeats struct {
	Hosts        int     `json:"hosts"`     // hosts that renew Leases, or may at any moment
	PerSecond    float64 `json:"perSecond"` // renewals; 0 if the setting is invalid
	MaxPerSecond float64 `json:"maxPerSecond"`
	LeaseSeconds float64 `json:"leaseSeconds"` // 0 if the setting is invalid
	Setting      string  `json:"setting"`      // settings/lease-duration; empty if there is none
	Reason       string  `json:"reason"`
}

// Store is the state of the store as this server sees it.
type Store struct {
	Type     string `json:"type"`
	Endpoint string `json:"endpoint"`
	// Since is since when it has answered without a gap; null while it does not.
	Since *time.Time `json:"since"`
	// Refused reports that the store answers, but refuses this server: it lacks a right, or its
	// credentials are rejected.
	Refused bool   `json:"refused,omitempty"`
	Error   string `json:"error,omitempty"`
}

// Controller is one controller on this server.
type Controller struct {
	Name string `json:"name"`
	// State is Leading, Standby, Yielding (another program does the job), Disabled, NotApplicable (to
	// this type of store) or Starting.
	State   string     `json:"state"`
	Leader  string     `json:"leader"` // candidate that had the last known term, and may be dead; empty if unknown
	Since   *time.Time `json:"since"`  // when the leader was elected
	Message string     `json:"message,omitempty"`
	// Waits is why more may be due than is known, such as "listing pods: 12000 so far"; empty if all is known.
	Waits   string `json:"waits,omitempty"`
	Due     int    `json:"due"`     // number of changes that are known to be due now
	Pending int    `json:"pending"` // number of changes that are known to be due later, or paused
	Failing int    `json:"failing"` // number of objects that it cannot write
	// Stored, Conflicts and Failed count writes since the start.
	Stored    uint64 `json:"stored"`
	Conflicts uint64 `json:"conflicts"`
	Failed    uint64 `json:"failed"`
	// OldestDueSeconds is the age of the oldest change that is due and not stored yet; 0 if there is
	// none.
	OldestDueSeconds float64 `json:"oldestDueSeconds"`
	// WatchLagSeconds is how long the watch took to show the last change that this server stored.
	WatchLagSeconds float64 `json:"watchLagSeconds"`
}

// States of a Controller.
const (
	Leading       = "Leading"
	Standby       = "Standby"
	Yielding      = "Yielding"
	Disabled      = "Disabled"
	NotApplicable = "NotApplicable"
	Starting      = "Starting"
)

// Zone is one zone of the fleet.
type Zone struct {
	Name     string  `json:"name"`  // empty for Nodes without zone labels
	State    string  `json:"state"` // Normal, PartialDisruption, FullDisruption or Empty
	Nodes    int     `json:"nodes"`
	NotReady int     `json:"notReady"`
	Rate     float64 `json:"evictionRate"` // NoExecute taints per second
	Paused   string  `json:"paused,omitempty"`
}

// Problem is an object that is not changed, and the reason.
type Problem struct {
	Object  string `json:"object"` // KIND/NAME
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

// Plan is what the controllers do now and later, as printed by `hostler fleet plan -o json`.
type Plan struct {
	Controllers []ControllerPlan `json:"controllers"`
}

// ControllerPlan is the plan of one controller.
type ControllerPlan struct {
	Name  string `json:"name"`
	State string `json:"state"`           // of the controller; only a leader executes its plan
	At    string `json:"at"`              // when it made the decision, RFC 3339; empty if there is none yet
	Waits string `json:"waits,omitempty"` // as in Controller: if it is not empty, there may be more actions
	// Watches is the input of its decisions, such as "3 Nodes and their Leases".
	Watches string `json:"watches"`
	// Next is when it decides again even if nothing changes before; null if never.
	Next    *time.Time `json:"next"`
	Actions []Action   `json:"actions"`
	// Settled are Nodes that are not ready and have no action: the first ten by name.
	Settled []Settled `json:"settled,omitempty"`
}

// Settled is a Node that is not ready and has its taints already.
type Settled struct {
	Node   string   `json:"node"`
	Ready  string   `json:"ready"`  // status of the condition: False or Unknown; empty if the Node lacks it
	Taints []string `json:"taints"` // such as unreachable:NoExecute
	// NoExecuteSince is null if the Node has no NoExecute taint with a time.
	NoExecuteSince *time.Time `json:"noExecuteSince"`
	Next           string     `json:"next"` // the next step for its pods
}

// Action is one change to one object.
type Action struct {
	Object string `json:"object"` // KIND/NAME
	Zone   string `json:"zone"`
	Action string `json:"action"` // such as "add taint node.kubernetes.io/unreachable:NoExecute"
	Reason string `json:"reason"`
	// Due is when it is executed; null while it is paused.
	Due *time.Time `json:"due"`
}
