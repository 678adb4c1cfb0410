package status

import (
	"fmt"
	"math"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/status/probe"
)

// The conditions that report how much tasks stall for a resource. They are hostler's own, exist
// only if Policy.PSI has a limit for the resource, and True is bad.
const (
	CPUContention    corev1.NodeConditionType = "hostler.io/CPUContention"
	MemoryContention corev1.NodeConditionType = "hostler.io/MemoryContention"
	IOContention     corev1.NodeConditionType = "hostler.io/IOContention"
)

// contention is the condition of a resource, with the resource's name for messages.
type contention struct {
	kind corev1.NodeConditionType
	name string
}

// contentions returns the conditions of the resources that the kernel reports.
func contentions() map[string]contention {
	return map[string]contention{
		"cpu":    {CPUContention, "CPU"},
		"memory": {MemoryContention, "memory"},
		"io":     {IOContention, "I/O"},
	}
}

// contended compares the measured stalls, in their order, with their limits. A stall without a
// limit, or a limit without a stall, comes from a reload: the next check has both.
func contended(stalls []probe.Stall, limits []StallLimit) []pressure {
	var found []pressure
	for _, s := range stalls {
		for _, l := range limits {
			if c, known := contentions()[s.Resource]; known && l.Resource == s.Resource {
				found = append(found, pressure{c.kind, l.judge(s, c.name)})
			}
		}
	}
	return found
}

// judge returns the finding for a stall: contention if it is above the limit.
func (l StallLimit) judge(s probe.Stall, name string) finding {
	switch {
	case s.Absent:
		return finding{corev1.ConditionUnknown, ReasonPSIUnavailable, fmt.Sprintf(
			"the kernel provides no pressure stall information (/proc/pressure/%s); boot it with psi=1 on its command line", s.Resource)}
	case s.Problem != "":
		return finding{corev1.ConditionUnknown, ReasonNotMeasured, s.Problem}
	}
	averages := s.Some
	if l.Kind == "full" {
		averages = s.Full
	}
	stalled, window := averages.Minute, "minute"
	switch l.Window {
	case 10 * time.Second:
		stalled, window = averages.TenSeconds, "10 s"
	case 5 * time.Minute:
		stalled, window = averages.FiveMinutes, "5 min"
	}
	message := fmt.Sprintf("%s stalled %s %s of the last %s", name, l.Kind, stalledPercent(stalled), window)
	if stalled > l.Threshold.percent {
		return finding{corev1.ConditionTrue, ReasonStallsAboveThreshold, message + ", threshold " + l.Threshold.String()}
	}
	return finding{corev1.ConditionFalse, ReasonStallsBelowThreshold, message}
}

// stalledPercent rounds up to tenths, so that a value above a threshold is also printed as above
// it. The kernel reports hundredths.
func stalledPercent(percent float64) string {
	tenths := math.Ceil(math.Round(percent*100) / 10)
	return strconv.FormatFloat(tenths/10, 'f', -1, 64) + "%"
}
