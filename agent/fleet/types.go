package fleet

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
)

// Fleet identifies the control plane and the host that was asked.
type Fleet struct {
	Type     string `json:"type"` // type of the control plane
	Endpoint string `json:"endpoint"`
	// Node is the Node name of the host that was asked.
	Node string `json:"node"`
	// LeasesEnd reports that the control plane deletes expired Leases. So a host without a Lease
	// has no heartbeat.
	LeasesEnd bool `json:"leasesEnd,omitempty"`
	// Message says which part of the fleet cannot be read and is left out.
	Message string `json:"message,omitempty"`
}

// Member is one host of a fleet.
type Member struct {
	Node  *corev1.Node          `json:"node"`
	Lease *coordinationv1.Lease `json:"lease"` // null if there is none
	// ReadAt is when both were read, by the clock of the host that was asked. The times in a Lease
	// are by the clock of the Lease's host.
	ReadAt time.Time `json:"readAt"`
}

// MemberOf is the answer of `hostler nodes NAME -o json`.
type MemberOf struct {
	Member
	ControlPlane Fleet `json:"controlPlane"`
}
