package status

import (
	"fmt"
	"time"
)

// Policy says when the host is under pressure, and for how long it must not have
// been before it no longer counts as such.
type Policy struct {
	MemoryAvailable Threshold // of MemAvailable against MemTotal

	NodefsAvailable   Threshold // bytes, node filesystem
	NodefsInodesFree  Threshold
	ImagefsAvailable  Threshold // bytes, each image filesystem
	ImagefsInodesFree Threshold

	PIDAvailable Threshold

	// TransitionPeriod is how long a pressure condition stays True after the
	// last time that pressure was seen.
	TransitionPeriod time.Duration
}

// DefaultPolicy returns kubelet's hard eviction thresholds, and 5% of PIDs, for
// which kubelet has none.
func DefaultPolicy() Policy {
	return Policy{
		MemoryAvailable:   Threshold{amount: 100 << 20, text: "100Mi"},
		NodefsAvailable:   Threshold{percent: 10, text: "10%"},
		NodefsInodesFree:  Threshold{percent: 5, text: "5%"},
		ImagefsAvailable:  Threshold{percent: 15, text: "15%"},
		ImagefsInodesFree: Threshold{percent: 5, text: "5%"},
		PIDAvailable:      Threshold{percent: 5, text: "5%"},
		TransitionPeriod:  5 * time.Minute,
	}
}

// Validate checks what ParseThreshold does not see.
func (p Policy) Validate() error {
	if p.TransitionPeriod < 0 {
		return fmt.Errorf("transitionPeriod %s is negative; 0s lowers a condition at once", p.TransitionPeriod)
	}
	return nil
}
