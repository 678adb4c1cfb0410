package status

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Protected returns the result of the condition ShutdownProtected: whether a shutdown now would
// wait until the pods have stopped, for as long as configured. It also returns the reason, and a
// message with a hint.
func Protected(facts Facts) (protected bool, reason, message string) {
	f := shutdownProtected(facts, nil)
	return f.status == corev1.ConditionTrue, f.reason, f.message
}

// shutdownProtected returns the condition after last, which is nil if there was none.
func shutdownProtected(facts Facts, last *corev1.NodeCondition) finding {
	s := facts.Shutdown
	why := ""
	if s.Reason != "" {
		why = ": " + s.Reason
	}
	switch s.State {
	case "Armed":
		return armed(facts)
	case "Draining":
		return finding{corev1.ConditionTrue, ReasonShuttingDown, "a shutdown is waiting for the pods to stop" + why}
	case "Released":
		return finding{corev1.ConditionTrue, ReasonReleased, "the pods have stopped and the shutdown continues" + why}
	case "Delegated":
		return finding{corev1.ConditionTrue, ReasonDelegated, "another program on this host delays a shutdown for the pods" + why}
	case "Disarmed":
		if s.Fault == ReasonStarting {
			return starting(last, "hostler has just started and does not know yet whether a shutdown will wait for the pods to stop"+why)
		}
		reason := ReasonDisarmed
		if s.Fault != "" {
			reason = s.Fault
		}
		return finding{corev1.ConditionFalse, reason, "a shutdown will not wait for the pods to stop" + why}
	}
	return finding{corev1.ConditionUnknown, ReasonNotMeasured, "the shutdown guard has not reported yet whether it holds a lock"}
}

// named says that these runtimes are not ready.
func named(notReady []string) string {
	last := len(notReady) - 1
	if last == 0 {
		return notReady[0] + ", which is not ready"
	}
	return strings.Join(notReady[:last], ", ") + " and " + notReady[last] + ", which are not ready"
}

// armed returns whether the lock protects the pods.
func armed(facts Facts) finding {
	s := facts.Shutdown
	if s.Shortage != "" || s.Granted > 0 && s.Granted < s.Needed {
		message := fmt.Sprintf("a shutdown waits for %v, but the pods' phases take %v with their margin: they are shortened to fit", s.Granted, s.Needed)
		if s.Shortage != "" {
			message = "a shutdown shortens the pods' phases"
		}
		if s.Granted == 0 {
			message = fmt.Sprintf("a shutdown may stop services before the pods' phases end, which take %v with their margin", s.Needed)
		}
		return finding{corev1.ConditionFalse, ReasonDelayTooShort, strings.TrimSuffix(message+": "+s.Shortage, ": ")}
	}
	var notReady []string
	for _, r := range facts.Runtimes {
		if !r.Ready {
			notReady = append(notReady, r.Name)
		}
	}
	for _, r := range facts.Unreachable {
		notReady = append(notReady, r.Name)
	}
	const outOfReach = "a shutdown waits for the pods, but hostler could not stop "
	switch {
	case !facts.RuntimesQueried: // they will be
	case len(facts.Runtimes)+len(facts.Unreachable) == 0:
		return finding{corev1.ConditionFalse, ReasonPodsOutOfReach, outOfReach + "any: no container runtime was found"}
	case len(notReady) > 0:
		return finding{corev1.ConditionFalse, ReasonPodsOutOfReach, outOfReach + "the pods of " + named(notReady)}
	}
	message := "a shutdown waits for the pods to stop"
	if len(s.Untimed) > 0 {
		message += ", except those of phase " + strings.Join(s.Untimed, ", ") + ", which has 0s: they may be killed at once"
	}
	if s.Reason != "" {
		message += ": " + s.Reason
	}
	return finding{corev1.ConditionTrue, ReasonArmed, message}
}
