// Package slots decides which hosts of a group may reboot now. It owns the record of a group: the holders of
// its slots, the queue, and the last releases.
//
// State and its methods are pure. Groups stores it with compare-and-swap, so that several servers never give
// more slots than there are. No timer ever takes a slot from its holder.
package slots

import (
	"fmt"
	"regexp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"hostler.io/hostler/internal/sanitize"
)

// Bounds of the stored State. On Kubernetes, it must fit into the 256 KiB of annotations.
const (
	MostSlots     = 100
	mostAgents    = 150 // that wait
	mostFleetLock = 50  // clients that wait
	mostReleases  = 10  // by persons, and as many others
	mostReason    = 100 // in bytes
	// LongestRequest is the greatest length of the ID of an agent's request, in bytes.
	LongestRequest = 64
)

// ClientType is how a client requests slots.
type ClientType string

// The types of clients: by the FleetLock protocol, or by an annotation of the agent's Node.
const (
	FleetLock ClientType = "fleetlock"
	Agent     ClientType = "agent"
)

// State is the record of a group.
type State struct {
	Holders  []Holder  `json:"holders"`
	Waiting  []Request `json:"waiting"`  // oldest first
	Releases []Release `json:"releases"` // newest first
	// Requests counts all requests ever made.
	Requests int64 `json:"requests"`
	// Turn is the number of the last request that may overtake older requests of other zones.
	Turn int64 `json:"turn"`

	beside // not stored
}

// beside is what a decision uses in addition to the stored record.
type beside struct {
	elsewhere map[string]otherSlot // slots of other groups, by the ID of the client
	// confirmed is the moment up to which all changes of Nodes are known. due is since when requests are due, by the ID
	// of the client.
	confirmed time.Time
	due       map[string]time.Time // nil if Nodes need no confirmation
}

// Confirm sets the moment up to which all changes of Nodes are known, and since when requests are due: nothing else
// makes them wait. A request that is not due, or later than the Nodes, gets no slot: the Nodes do not say yet whether
// another host may reboot now.
func (s *State) Confirm(confirmed time.Time, due map[string]time.Time) {
	s.confirmed, s.due = confirmed, due
}

// unconfirmed reports whether the Nodes are not known up to the moment when a request was due.
func (s *State) unconfirmed(r Request) bool {
	due, is := s.due[r.ID]
	return s.due != nil && (!is || s.confirmed.Before(due))
}

// otherSlot is a slot of another group.
type otherSlot struct {
	group string
	by    ClientType
}

// Client requests or holds a slot.
type Client struct {
	ID   string     `json:"id"`
	Type ClientType `json:"by"`
	// Reason is why the client wants to reboot.
	Reason string `json:"reason,omitempty"`
	// Request is the ID of an agent's request.
	Request string `json:"request,omitempty"`
}

// Request is a waiting client. The order of the list is the order of the requests, whatever the clocks say.
type Request struct {
	Client
	Number int64       `json:"number"`
	Since  metav1.Time `json:"since"`
	// Asked is the time of the last repetition, with an error of up to refreshTime. EverySeconds is the
	// time between the last two. FleetLock clients must repeat their requests.
	Asked        metav1.Time `json:"asked"`
	EverySeconds int64       `json:"everySeconds,omitempty"`
	// Paused reports that the agent does not want the slot yet. Its request keeps its place.
	Paused bool `json:"paused,omitempty"`
}

// Holder is a client that has a slot.
type Holder struct {
	Client
	// Number is that of the request. With the group, it identifies the slot: no number is used twice.
	Number int64       `json:"number,omitempty"`
	Since  metav1.Time `json:"since"`
	// Node is the name of the client's Node; empty if there was no such Node. UID, Zone and BootID are from
	// the time when the client got the slot.
	Node   string    `json:"node,omitempty"`
	UID    types.UID `json:"uid,omitempty"`
	Zone   string    `json:"zone,omitempty"`
	BootID string    `json:"bootID,omitempty"`
}

// ReleaseCause is how a slot became free, or a request ended.
type ReleaseCause string

// The causes.
const (
	GivenBack   ReleaseCause = "GivenBack"   // by the holder
	Released    ReleaseCause = "Released"    // by a person
	NodeDeleted ReleaseCause = "NodeDeleted" // the Node of the holder was deleted
)

// Release is a slot that became free.
type Release struct {
	ID     string       `json:"id"`
	Node   string       `json:"node,omitempty"`
	Held   *metav1.Time `json:"held"` // start of holding the slot; null for a request without a slot
	At     metav1.Time  `json:"at"`
	Cause  ReleaseCause `json:"how"`
	By     string       `json:"by"` // "fleetlock" or "agent", a person, or a server
	Reason string       `json:"reason,omitempty"`
}

// validID matches the IDs that clients may have.
var validID = regexp.MustCompile(`^[A-Za-z0-9._:@-]{1,253}$`)

// CheckID returns an error if a client may not have that ID.
func CheckID(id string) error {
	if validID.MatchString(id) {
		return nil
	}
	return fmt.Errorf("%q is not an ID of 1 to 253 letters, digits and . _ : @ -", sanitize.Text(id, 100))
}

// Holder returns the slot of a client; nil if it has none.
func (s *State) Holder(id string) *Holder {
	if i := slices.IndexFunc(s.Holders, func(h Holder) bool { return h.ID == id }); i >= 0 {
		return &s.Holders[i]
	}
	return nil
}

// Request returns the waiting request of a client; nil if there is none.
func (s *State) Request(id string) *Request {
	if i := slices.IndexFunc(s.Waiting, func(r Request) bool { return r.ID == id }); i >= 0 {
		return &s.Waiting[i]
	}
	return nil
}

// GiveBack frees the slot of a FleetLock client, or removes its request. It reports whether there was either.
func (s *State) GiveBack(id string, now time.Time) bool {
	held, waits := s.Holder(id), s.Request(id)
	switch {
	case held != nil && held.Type == FleetLock:
		return s.Free(*held, GivenBack, string(FleetLock), now)
	case waits != nil && waits.Type == FleetLock:
		return s.remove(id)
	}
	return false
}

// Release frees the slot of a client, or removes its request, for a person. It reports whether there was
// either.
func (s *State) Release(id, by, reason string, now time.Time) bool {
	r := Release{ID: id, Cause: Released, By: by, Reason: Shorten(reason)}
	if held := s.Holder(id); held != nil {
		r.Node, r.Held = held.Node, &held.Since
	}
	if !s.remove(id) {
		return false
	}
	s.record(r, now)
	return true
}

// Name is GROUP/NUMBER of a slot of that group.
func (h Holder) Name(group string) string { return fmt.Sprintf("%s/%d", group, h.Number) }

// Is reports whether both are the same slot. If other is nil, they are not.
func (h Holder) Is(other *Holder) bool {
	return other != nil && h.Client == other.Client && h.Number == other.Number && h.Node == other.Node && h.UID == other.UID && h.Since.Equal(&other.Since)
}

// Beside returns the State with the holders of other groups. No agent gets a second slot, and nobody gets one beside
// the agent of the same host. A FleetLock client may hold slots of several groups: it says itself which host it is.
func (s State) Beside(others map[string]State) State {
	s.elsewhere = nil
	for group, other := range others {
		for _, h := range other.Holders {
			if s.elsewhere == nil {
				s.elsewhere = map[string]otherSlot{}
			}
			if known, is := s.elsewhere[h.ID]; !is || known.by != Agent && (h.Type == Agent || group < known.group) {
				s.elsewhere[h.ID] = otherSlot{group, h.Type}
			}
		}
	}
	return s
}

// Free frees a slot. It reports whether the holder still had that slot.
func (s *State) Free(h Holder, cause ReleaseCause, by string, now time.Time) bool {
	if !h.Is(s.Holder(h.ID)) {
		return false
	}
	s.record(Release{ID: h.ID, Node: h.Node, Held: &h.Since, Cause: cause, By: by}, now)
	return s.remove(h.ID)
}

// remove removes the slot and the request of a client.
func (s *State) remove(id string) bool {
	before := len(s.Holders) + len(s.Waiting)
	s.Holders = slices.DeleteFunc(slices.Clone(s.Holders), func(h Holder) bool { return h.ID == id })
	s.Waiting = slices.DeleteFunc(slices.Clone(s.Waiting), func(r Request) bool { return r.ID == id })
	return len(s.Holders)+len(s.Waiting) < before
}

// record adds a release, and removes the oldest. Those by persons are bounded apart: many short slots do not replace them.
func (s *State) record(r Release, now time.Time) {
	r.At = stamp(now)
	kept := 0
	s.Releases = slices.DeleteFunc(append([]Release{r}, s.Releases...), func(o Release) bool {
		if (o.Cause == Released) != (r.Cause == Released) {
			return false
		}
		kept++
		return kept > mostReleases
	})
}

// stamp converts a time to its stored format.
func stamp(at time.Time) metav1.Time { return metav1.NewTime(at.UTC().Truncate(time.Second)) }

// Shorten returns a reason as it is stored.
func Shorten(reason string) string { return sanitize.Text(reason, mostReason) }
