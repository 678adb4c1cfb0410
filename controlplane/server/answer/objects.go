package answer

import "time"

// GarbagePlan is what the garbage collector does, as printed by `hostler fleet gc plan -o json`.
type GarbagePlan struct {
	State   string `json:"state"`           // of the controller; only a leader executes its plan
	At      string `json:"at"`              // when it made the decision, RFC 3339; empty if there is none yet
	Waits   string `json:"waits,omitempty"` // as in Controller: if it is not empty, there may be more facts
	Objects int    `json:"objects"`         // number of known objects
	// Facts are the objects that need an action, by name.
	Facts []GarbageFact `json:"facts"`
	// Kinds are kinds that cannot be watched; Unreadable are objects that cannot be read.
	Kinds      []Problem `json:"kinds"`
	Unreadable []Problem `json:"unreadable"`
}

// GarbageFact is an object that has to be changed, that waits, or that cannot be decided.
type GarbageFact struct {
	Object string `json:"object"` // KIND/NAME
	State  string `json:"state"`  // Due, Waits or Undecided
	Action string `json:"action,omitempty"`
	Reason string `json:"reason"`
	Hint   string `json:"hint,omitempty"`
}

// States of a GarbageFact.
const (
	Due       = "Due"
	Waits     = "Waits"
	Undecided = "Undecided"
)

// ObjectList is the objects of a kind, as printed by `hostler fleet get KIND -o json`.
type ObjectList struct {
	Kind    string   `json:"kind"`
	Objects []Object `json:"objects"`
}

// Object is the metadata of an object, and what an Event says.
type Object struct {
	Name       string     `json:"name"`   // name of the stored object, such as NAMESPACE/NAME
	Owners     []string   `json:"owners"` // KIND/NAME
	Created    *time.Time `json:"created"`
	Deleted    *time.Time `json:"deleted"` // when its deletion was requested
	Finalizers []string   `json:"finalizers"`
	Problem    string     `json:"problem,omitempty"` // why it cannot be read
	Event      *Event     `json:"event,omitempty"`   // what an Event says; absent for other kinds
}

// Event is what an Event says.
type Event struct {
	Type     string    `json:"type"` // Normal or Warning
	Reason   string    `json:"reason"`
	Message  string    `json:"message"`
	Count    int32     `json:"count"` // how often it has happened
	LastSeen time.Time `json:"lastSeen"`
}

// The cascades of a deletion.
const (
	Background = "background"
	Foreground = "foreground"
	Orphan     = "orphan"
)

// DeletionRequest requests the deletion of an object, or the plan of it.
type DeletionRequest struct {
	Object  string `json:"object"`  // KIND/NAME
	Cascade string `json:"cascade"` // Background, Foreground or Orphan
	// UID and Version are from the plan. If the object is another one or has changed, the deletion is
	// refused, except for what a host writes on etcd: else a host could prevent that.
	UID     string `json:"uid,omitempty"`
	Version string `json:"version,omitempty"`
	// Unreadable says that the object could not be read. It is deleted only if that is still so.
	Unreadable bool `json:"unreadable,omitempty"`
}

// Deletion is the result or the plan of a deletion, as printed by `hostler fleet delete -o json`.
type Deletion struct {
	DeletionRequest
	Requested bool     `json:"requested"` // false for a plan
	Objects   []Branch `json:"objects"`   // the object, then its dependents, each below the first of its owners
	Warnings  []string `json:"warnings"`
}

// Branch is an object in a deletion, and its fate.
type Branch struct {
	Object string `json:"object"` // KIND/NAME
	Depth  int    `json:"depth"`  // 0 for the deleted object, 1 for its dependents
	Fate   string `json:"fate"`   // deleted, kept or orphaned
	Note   string `json:"note,omitempty"`
}
