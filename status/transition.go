package status

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// Transition is a condition whose status changed between two checks. For each, the agent records an
// Event, counts, and logs a line.
type Transition struct {
	Old *corev1.NodeCondition // nil if the condition is new
	New corev1.NodeCondition
}

// Transitions returns the changes, in the order of the new conditions.
func Transitions(before, after []corev1.NodeCondition) []Transition {
	var result []Transition
	for _, c := range after {
		old := find(before, c.Type)
		if old != nil && old.Status == c.Status {
			continue
		}
		t := Transition{New: c}
		if old != nil {
			o := *old
			t.Old = &o
		}
		result = append(result, t)
	}
	return result
}

// Good reports whether the new status is that of a healthy host. Unknown is not.
func (t Transition) Good() bool {
	switch t.New.Type {
	case corev1.NodeReady, ShutdownProtected:
		return t.New.Status == corev1.ConditionTrue
	default: // True is a problem
		return t.New.Status == corev1.ConditionFalse
	}
}

// EventType returns the type of the Event: Normal for a good status, else Warning.
func (t Transition) EventType() string {
	if t.Good() {
		return corev1.EventTypeNormal
	}
	return corev1.EventTypeWarning
}

// EventReason returns the reason of the Event: kubelet's, if it has one; for a custom condition
// that becomes bad, the condition's own. An Unknown status counts as the bad one, except for a
// condition that names a problem: its Event says that the status is unknown.
func (t Transition) EventReason() string {
	names := map[corev1.NodeConditionType][2]string{ // True, False
		corev1.NodeReady:              {"NodeReady", "NodeNotReady"},
		corev1.NodeMemoryPressure:     {"NodeHasInsufficientMemory", "NodeHasSufficientMemory"},
		corev1.NodeDiskPressure:       {"NodeHasDiskPressure", "NodeHasNoDiskPressure"},
		corev1.NodePIDPressure:        {"NodeHasInsufficientPID", "NodeHasSufficientPID"},
		corev1.NodeNetworkUnavailable: {"NodeNetworkUnavailable", "NodeNetworkAvailable"},
		CPUContention:                 {"NodeHasCPUContention", "NodeHasNoCPUContention"},
		MemoryContention:              {"NodeHasMemoryContention", "NodeHasNoMemoryContention"},
		IOContention:                  {"NodeHasIOContention", "NodeHasNoIOContention"},
		ShutdownProtected:             {"NodeShutdownProtected", "NodeShutdownNotProtected"},
	}
	pair, found := names[t.New.Type]
	switch {
	case !found && t.New.Status == corev1.ConditionTrue && t.New.Reason != "":
		return t.New.Reason // from the header of the check
	case !found && t.New.Status != corev1.ConditionUnknown:
		return "NodeConditionChanged"
	case t.New.Status == corev1.ConditionTrue:
		return pair[0]
	case t.New.Status == corev1.ConditionFalse, t.New.Type == corev1.NodeReady, t.New.Type == ShutdownProtected:
		return pair[1]
	default:
		return "NodeConditionUnknown"
	}
}

// Message returns the text of the Event and the log line.
func (t Transition) Message() string {
	before := "new"
	if t.Old != nil {
		before = string(t.Old.Status)
	}
	return fmt.Sprintf("%s is %s (was %s): %s: %s", t.New.Type, t.New.Status, before, t.New.Reason, t.New.Message)
}
