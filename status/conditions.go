package status

import (
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Memory is the state that one check passes to the next. The zero value is the state before the
// first check. Remember creates one from conditions of an earlier agent process.
type Memory struct {
	conditions []corev1.NodeCondition
	// pressed is when each pressure was last seen; replaced, never modified.
	pressed map[corev1.NodeConditionType]time.Time
	// faults has the first time of each reason for which Ready is false, if no fact has that time;
	// replaced, never modified.
	faults map[string]time.Time
}

// Remember returns a state from the conditions that the agent reported before its restart. They
// keep their transition times, and pressures stay for the rest of the transition period. Do not use
// it for conditions from before a reboot.
func Remember(conditions []corev1.NodeCondition) Memory {
	m := Memory{conditions: slices.Clone(conditions), pressed: map[corev1.NodeConditionType]time.Time{}}
	for _, c := range conditions {
		if c.Status == corev1.ConditionTrue {
			m.pressed[c.Type] = c.LastHeartbeatTime.Time
		}
	}
	return m
}

// Follow returns the state with other times: those with which the conditions are reported.
func (m Memory) Follow(conditions []corev1.NodeCondition) Memory {
	m.conditions = slices.Clone(conditions)
	return m
}

// since returns when a reason of Ready was first seen, and stores it in m for the next check. If
// the previous check did not have the reason, that is now.
func (m *Memory) since(reason string, before Memory, now time.Time) time.Time {
	seen, known := before.faults[reason]
	if last := before.condition(corev1.NodeReady); !known && last != nil && last.Status == corev1.ConditionFalse && last.Reason == reason {
		seen, known = last.LastTransitionTime.Time, true // from before a restart of the agent
	}
	if !known || seen.After(now) {
		seen = now
	}
	if m.faults == nil {
		m.faults = map[string]time.Time{}
	}
	m.faults[reason] = seen
	return seen
}

// condition returns the last condition of a type, or nil.
func (m Memory) condition(kind corev1.NodeConditionType) *corev1.NodeCondition {
	return find(m.conditions, kind)
}

func find(conditions []corev1.NodeCondition, kind corev1.NodeConditionType) *corev1.NodeCondition {
	i := slices.IndexFunc(conditions, func(c corev1.NodeCondition) bool { return c.Type == kind })
	if i < 0 {
		return nil
	}
	return &conditions[i]
}

// finding is a condition without times.
type finding struct {
	status  corev1.ConditionStatus
	reason  string
	message string
}

// pressure is a checked condition that has hysteresis.
type pressure struct {
	kind  corev1.NodeConditionType
	found finding
}

// Conditions returns the Node's conditions, with Ready last as Kubernetes expects it, and the state
// for the next check. A pressure or contention condition becomes True at the first check beyond the
// threshold. It becomes False after Pressure.TransitionPeriod without one. All other conditions
// follow the facts immediately.
func Conditions(facts Facts, options Options, memory Memory, now time.Time) ([]corev1.NodeCondition, Memory) {
	next := Memory{pressed: maps.Clone(memory.pressed)}
	if next.pressed == nil {
		next.pressed = map[corev1.NodeConditionType]time.Time{}
	}
	for _, p := range append([]pressure{
		{corev1.NodeMemoryPressure, judge(memoryGauges(facts, options), ReasonSufficientMemory)},
		{corev1.NodeDiskPressure, judge(diskGauges(facts, options), ReasonSufficientDisk)},
		{corev1.NodePIDPressure, judge(pidGauges(facts, options), ReasonSufficientPIDs)},
	}, contended(facts.Stalls, options.Pressure.PSI)...) {
		if p.found.status == corev1.ConditionTrue {
			next.pressed[p.kind] = now
		} else {
			p.found = hold(p.found, memory.condition(p.kind), next.pressed, options.Pressure.TransitionPeriod, now)
		}
		next.add(p.kind, p.found, memory, now)
	}
	next.add(corev1.NodeNetworkUnavailable, networkUnavailable(facts.Network, options.Addresses), memory, now)
	next.add(ShutdownProtected, shutdownProtected(facts, memory.condition(ShutdownProtected)), memory, now)
	for _, c := range facts.Custom {
		if found, known := custom(c, memory.condition(c.Type)); known {
			next.add(c.Type, found, memory, now)
		}
	}
	seen := func(reason string) time.Time { return next.since(reason, memory, now) }
	next.add(corev1.NodeReady, ready(facts, memory.condition(corev1.NodeReady), seen), memory, now)
	return slices.Clone(next.conditions), next
}

// add adds a finding with times: a condition keeps its transition time while its status stays the
// same.
func (m *Memory) add(kind corev1.NodeConditionType, f finding, before Memory, now time.Time) {
	c := corev1.NodeCondition{
		Type:               kind,
		Status:             f.status,
		Reason:             f.reason,
		Message:            f.message,
		LastHeartbeatTime:  metav1.NewTime(now),
		LastTransitionTime: metav1.NewTime(now),
	}
	if last := before.condition(kind); last != nil && last.Status == c.Status {
		c.LastTransitionTime = last.LastTransitionTime
	}
	m.conditions = append(m.conditions, c)
}

// hold keeps a pressure condition True if pressure was seen within the transition period. A last
// time in the future, from before the clock was set back, counts as now.
func hold(found finding, last *corev1.NodeCondition, pressed map[corev1.NodeConditionType]time.Time, period time.Duration, now time.Time) finding {
	if last == nil || last.Status != corev1.ConditionTrue {
		return found
	}
	seen := pressed[last.Type]
	if seen.After(now) {
		seen = now
		pressed[last.Type] = now
	}
	until := seen.Add(period)
	if !now.Before(until) {
		return found
	}
	return finding{
		status: corev1.ConditionTrue,
		reason: last.Reason,
		message: NoPressureSince + stamp(seen) + "; the condition is lifted at " + stamp(until) +
			" unless pressure recurs; now " + found.message,
	}
}

// NoPressureSince begins the message of a pressure condition that stays True until
// pressure.transitionPeriod is over.
const NoPressureSince = "no pressure since "

// OwnConditions returns the conditions that only hostler has. If the Node belongs to a kubelet,
// only these may be written.
func OwnConditions(conditions []corev1.NodeCondition) []corev1.NodeCondition {
	return slices.DeleteFunc(slices.Clone(conditions), func(c corev1.NodeCondition) bool { return !IsOwn(c.Type) })
}

// IsOwn reports whether only hostler has a condition of that type.
func IsOwn(kind corev1.NodeConditionType) bool { return strings.HasPrefix(string(kind), "hostler.io/") }

// Leftovers returns stored conditions of an earlier hostler on a Node that now belongs to a
// kubelet, which nobody updates any more. own are the conditions that this hostler writes.
// published are conditions in other domains that it may have left. Conditions that the kubelet also
// writes are not included. Until the kubelet has written the Node, all conditions are hostler's,
// and it returns none.
func Leftovers(stored corev1.NodeStatus, own []corev1.NodeCondition, published []corev1.NodeConditionType) []corev1.NodeConditionType {
	if strings.Contains(stored.NodeInfo.KubeletVersion, versionMark) {
		return nil
	}
	var left []corev1.NodeConditionType
	for _, c := range stored.Conditions {
		switch {
		case (IsOwn(c.Type) || slices.Contains(published, c.Type)) && find(own, c.Type) == nil:
		case c.Type == corev1.NodeNetworkUnavailable && networkReason(c.Reason): // network plugins use other reasons
		default:
			continue
		}
		left = append(left, c.Type)
	}
	return left
}

// networkReason reports whether hostler uses that reason in NetworkUnavailable.
func networkReason(reason string) bool {
	switch reason {
	case ReasonNetworkAvailable, ReasonNoAddress, ReasonAddressMissing, ReasonNoCarrier, ReasonNotMeasured:
		return true
	default:
		return false
	}
}

// stamp formats a time in a message, so that the text does not depend on the current time.
func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
