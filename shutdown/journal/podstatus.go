package journal

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Reason and message of a pod that was killed by a shutdown, as in kubelet.
const (
	ReasonTerminated  = "Terminated"
	messageTerminated = "Pod was terminated in response to imminent node shutdown."
	messageDrained    = "Pod was terminated by a drain of the node."
)

// PodStatus is the result of a pod in a shutdown, with the fields of a v1.Pod's status.
type PodStatus struct {
	Phase   corev1.PodPhase `json:"phase"`
	Reason  string          `json:"reason,omitempty"`
	Message string          `json:"message,omitempty"`
}

// PodStatus returns the status of one of the record's pods. A killed pod is Failed with reason
// Terminated, as in kubelet. A pod that ended in time is Succeeded, or Failed by its exit codes, or
// Unknown if no runtime reported them. A pod is Running if the drain did not stop it, or was
// cancelled before that.
func (r Record) PodStatus(p PodRecord) PodStatus {
	manual := r.Trigger.LivesOn()
	lives := manual || !r.CancelledAt.IsZero()
	switch {
	case p.Outcome == Stopped:
		return p.ended()
	case p.Outcome == Killed && manual:
		return PodStatus{corev1.PodFailed, ReasonTerminated, messageDrained}
	case p.Outcome == Killed:
		return PodStatus{corev1.PodFailed, ReasonTerminated, messageTerminated}
	case lives, p.Outcome == "":
		return PodStatus{Phase: corev1.PodRunning}
	}
	return PodStatus{corev1.PodFailed, ReasonTerminated, messageTerminated}
}

// ended returns the status of a pod whose containers ended in time.
func (p PodRecord) ended() PodStatus {
	if len(p.ExitCodes) == 0 {
		return PodStatus{Phase: corev1.PodUnknown, Message: "its containers exited in time; exit codes unknown"}
	}
	var failed []string
	for _, name := range slices.Sorted(maps.Keys(p.ExitCodes)) {
		if code := p.ExitCodes[name]; code != 0 {
			failed = append(failed, fmt.Sprintf("container %s exited with code %d", name, code))
		}
	}
	if len(failed) > 0 {
		return PodStatus{corev1.PodFailed, "Error", strings.Join(failed, "; ")} // reason of a container in kubelet
	}
	return PodStatus{corev1.PodSucceeded, "Completed", "its containers exited in time"}
}
