package selfdrain

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Settle and HearBound are what tests hold the package to.
const (
	Settle    = settle
	HearBound = hearBound
	MaxTries  = maxTries
)

// Restore is what an agent knows at its start.
func Restore(stored Memory, boot, of string, at Instant) Memory { return restore(stored, boot, of, at) }

// See takes in the taints of the Node.
func (m *Memory) See(taints []corev1.Taint, at Instant, first bool) bool {
	return m.see(taints, at, first)
}

// Drained takes in that the host was drained for these causes.
func (m *Memory) Drained(causes []Cause) { m.drained(causes) }

// Renewed takes in a renewal, Lost that there is none since then.
func (m *Memory) Renewed(of string, duration time.Duration) bool { return m.renewed(of, duration) }

// Lost takes in that there was no renewal since then.
func (m *Memory) Lost(since time.Duration) bool { return m.lost(since) }
