package selfdrain

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// HearBound and MaxTries are exported for tests.
const (
	HearBound = hearBound
	MaxTries  = maxTries
)

// Restore returns the memory of a new agent.
func Restore(stored Memory, boot, of string, now time.Duration) Memory {
	return restore(stored, boot, of, now)
}

// See records the taints of the Node.
func (m *Memory) See(taints []corev1.Taint, at time.Duration) bool { return m.see(taints, at) }

// Drained records that the host was drained for these causes.
func (m *Memory) Drained(causes []Cause) { m.drained(causes) }

// Renewed records a renewal.
func (m *Memory) Renewed(of string, duration time.Duration) bool { return m.renewed(of, duration) }

// Lost records that there was no renewal since then.
func (m *Memory) Lost(since time.Duration) bool { return m.lost(since) }
