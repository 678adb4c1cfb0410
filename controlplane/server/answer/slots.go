package answer

import "time"

// Slots are the reboot slots of a fleet, as printed by `hostler fleet slots -o json`.
type Slots struct {
	State     string      `json:"state"`     // of the controller; every server that runs it gives slots
	FleetLock string      `json:"fleetLock"` // address at which this server listens; empty if it does not
	Unread    string      `json:"unread"`    // why the server does not know the Nodes yet; empty if it does
	Groups    []SlotGroup `json:"groups"`
}

// SlotGroup is a group of hosts.
type SlotGroup struct {
	Name           string `json:"name"`
	Slots          int    `json:"slots"`
	OneZoneAtATime bool   `json:"oneZoneAtATime"`
	MaxUnavailable string `json:"maxUnavailable"`
	Nodes          int    `json:"nodes"` // number of Nodes in the group
	NotReady       int    `json:"notReady"`
	// NotReadyNodes has the names of the first ten Nodes that are not ready for other reasons than a
	// slot.
	NotReadyNodes []string `json:"notReadyNodes"`
	// Unrecorded is how many other hosts wait, beside those in Waiting.
	Unrecorded int          `json:"unrecorded"`
	Holders    []SlotHolder `json:"holders"`
	// WithoutSlot are the hosts that are rebooting and hold no slot, since when, and why.
	WithoutSlot []SlotHolder `json:"withoutSlot"`
	// Awaited names hosts that may reboot without a slot, because the store was restored.
	Awaited  string        `json:"awaited,omitempty"`
	Waiting  []SlotRequest `json:"waiting"`  // oldest first
	Releases []SlotRelease `json:"releases"` // newest first
	Error    string        `json:"error,omitempty"`
}

// SlotHolder holds a slot.
type SlotHolder struct {
	ID     string    `json:"id"`
	Since  time.Time `json:"since"`
	By     string    `json:"by"`   // fleetlock or agent
	Node   string    `json:"node"` // empty if the ID does not belong to a Node
	Zone   string    `json:"zone"`
	Reason string    `json:"reason"`
	Note   string    `json:"note,omitempty"` // about the state of its Node
	// Step is the progress of the reboot, and Waits what it waits for, if the agent of a host has
	// requested the slot.
	Step  string `json:"step,omitempty"`
	Waits string `json:"waits,omitempty"`
	Late  bool   `json:"late"` // held for more than an hour
}

// SlotRequest waits for a slot.
type SlotRequest struct {
	ID     string    `json:"id"`
	Since  time.Time `json:"since"`
	By     string    `json:"by"`
	Reason string    `json:"reason"`
	Wait   string    `json:"wait"`   // why it gets no slot yet
	Kept   bool      `json:"kept"`   // a slot is kept free for it
	Paused bool      `json:"paused"` // its host does not request the slot yet
}

// SlotRelease is a slot that became free.
type SlotRelease struct {
	ID     string     `json:"id"`
	Held   *time.Time `json:"held"` // since when it was held; null if the request had no slot
	At     time.Time  `json:"at"`
	How    string     `json:"how"` // GivenBack, Released or NodeDeleted
	By     string     `json:"by"`
	Reason string     `json:"reason,omitempty"`
}

// ReleaseRequest requests to free a slot whose holder does not give it back.
type ReleaseRequest struct {
	ID     string `json:"id"`
	Group  string `json:"group"`
	Reason string `json:"reason"`
}

// Release is the answer to a ReleaseRequest, as printed by `hostler fleet slots release -o json`.
type Release struct {
	ReleaseRequest
	// Message says why no other host gets the slot; absent if one may.
	Message string `json:"message,omitempty"`
}
