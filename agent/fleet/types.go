package fleet

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
)

// Fleet is whose hosts they are.
type Fleet struct {
	Type     string `json:"type"` // of the control plane
	Endpoint string `json:"endpoint"`
	// Node is that of the host that was asked.
	Node string `json:"node"`
	// LeasesEnd tells that the control plane takes a Lease away by itself that is not
	// renewed: who has none gives no sign of life.
	LeasesEnd bool `json:"leasesEnd,omitempty"`
	// Message is what of the fleet cannot be read, and is left out.
	Message string `json:"message,omitempty"`
}

// Member is one host of a fleet.
type Member struct {
	Node  *corev1.Node          `json:"node"`
	Lease *coordinationv1.Lease `json:"lease"` // null where there is none
	// ReadAt is when both were read, by the clock of the host that was asked. The
	// times in a Lease are by its own host's.
	ReadAt time.Time `json:"readAt"`
}

// MemberOf is the answer of `hostler nodes NAME -o json`.
type MemberOf struct {
	Member
	ControlPlane Fleet `json:"controlPlane"`
}
