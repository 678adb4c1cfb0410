package lifecycle

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// DeadZone is the treatment of a zone in which no Node is ready while another zone has a ready
// Node.
type DeadZone string

// The values.
const (
	DeadZonePause DeadZone = "pause" // no Node gets a NoExecute taint
	DeadZoneEvict DeadZone = "evict" // as in a healthy zone
)

// LeastRate and MostRate bound a rate that is not 0, in Nodes per second. The least is about one Node a
// day.
const (
	LeastRate = 1e-5
	MostRate  = 1000.0
)

// Policy is the configuration of the controller.
type Policy struct {
	// MonitorPeriod is the longest time between decisions.
	MonitorPeriod time.Duration
	// GracePeriod is how long a host may give no sign of life if the store does not end Leases.
	GracePeriod time.Duration
	// StartupGracePeriod is the grace period of a Node that never had a status or Lease.
	StartupGracePeriod time.Duration
	// EvictionRate is the number of Nodes of a zone that get a NoExecute taint in a second.
	EvictionRate float64
	// SecondaryEvictionRate is the rate of a partially disrupted zone, in a fleet of more than
	// LargeFleetSizeThreshold Nodes. In a smaller fleet the rate is 0.
	SecondaryEvictionRate   float64
	LargeFleetSizeThreshold int
	// UnhealthyZoneThreshold is the fraction of Nodes (0 to 1) from which a zone is partially
	// disrupted.
	UnhealthyZoneThreshold float64
	DeadZone               DeadZone
}

// DefaultPolicy has Kubernetes' values.
func DefaultPolicy() Policy {
	return Policy{
		MonitorPeriod: 5 * time.Second, GracePeriod: 50 * time.Second, StartupGracePeriod: 60 * time.Second,
		EvictionRate: 0.1, SecondaryEvictionRate: 0.01, LargeFleetSizeThreshold: 50, UnhealthyZoneThreshold: 0.55,
		DeadZone: DeadZoneEvict,
	}
}

// DefaultZoneLabels are the labels whose values, joined, name the zone of a Node.
func DefaultZoneLabels() []string {
	return []string{corev1.LabelTopologyRegion, corev1.LabelTopologyZone}
}
