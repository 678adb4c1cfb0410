package status

import (
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Memory is what one check leaves to the next. The zero value knows of no check
// before; Remember makes one of conditions that outlived the agent.
type Memory struct {
	conditions []corev1.NodeCondition
	// pressed is when each pressure was last seen; never changed in place.
	pressed map[corev1.NodeConditionType]time.Time
	// faults has the time since when Ready reports each reason, if no fact has it; never changed in
	// place.
	faults map[string]time.Time
}

// Remember takes the conditions that the agent reported before it was
// restarted, so that they keep their transition times and a pressure its hold.
// Conditions from before a reboot are better forgotten.
func Remember(conditions []corev1.NodeCondition) Memory {
	m := Memory{conditions: slices.Clone(conditions), pressed: map[corev1.NodeConditionType]time.Time{}}
	for _, c := range conditions {
		if c.Status == corev1.ConditionTrue {
			m.pressed[c.Type] = c.LastHeartbeatTime.Time
		}
	}
	return m
}

// Follow returns the same memory of conditions that are reported with other times than
// they were found with.
func (m Memory) Follow(conditions []corev1.NodeCondition) Memory {
	m.conditions = slices.Clone(conditions)
	return m
}

// since is when a fault of Ready was first seen, which m notes for the next check:
// with this one, if it was not seen with the one before.
func (m *Memory) since(reason string, before Memory, now time.Time) time.Time {
	seen, known := before.faults[reason]
	if last := before.condition(corev1.NodeReady); !known && last != nil && last.Status == corev1.ConditionFalse && last.Reason == reason {
		seen, known = last.LastTransitionTime.Time, true // before a restart of the agent
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

// finding is a condition without its times.
type finding struct {
	status  corev1.ConditionStatus
	reason  string
	message string
}

// pressure is the result of a check of a condition with hysteresis.
type pressure struct {
	kind  corev1.NodeConditionType
	found finding
}

// Conditions returns the Node's conditions, Ready last as Kubernetes expects it, and the state for
// the next check. A pressure or contention condition becomes True at the first check beyond the
// threshold, and False after Pressure.TransitionPeriod without one. Every other condition follows the
// facts at once.
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

// add gives a finding its times: a condition keeps its transition time for as
// long as its status stays.
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

// hold keeps a pressure condition True that has been seen within the transition
// period. A last time in the future, left behind by a clock that has been set
// back, counts as now.
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

// OwnConditions returns the conditions that only hostler has. Only these may be written on a host
// whose Node belongs to a kubelet.
func OwnConditions(conditions []corev1.NodeCondition) []corev1.NodeCondition {
	return slices.DeleteFunc(slices.Clone(conditions), func(c corev1.NodeCondition) bool { return !IsOwn(c.Type) })
}

// IsOwn reports whether a condition is hostler's alone.
func IsOwn(kind corev1.NodeConditionType) bool { return strings.HasPrefix(string(kind), "hostler.io/") }

// Leftovers returns the stored conditions that an earlier hostler left on a Node that now belongs to
// a kubelet, and that nobody updates. own are the conditions that this hostler writes; published are
// those of other domains that it may have left. Conditions that the kubelet writes, too, are not
// included. It returns none until the kubelet has written the Node, because until then all conditions
// are hostler's.
func Leftovers(stored corev1.NodeStatus, own []corev1.NodeCondition, published []corev1.NodeConditionType) []corev1.NodeConditionType {
	if strings.Contains(stored.NodeInfo.KubeletVersion, versionMark) {
		return nil
	}
	var left []corev1.NodeConditionType
	for _, c := range stored.Conditions {
		switch {
		case (IsOwn(c.Type) || slices.Contains(published, c.Type)) && find(own, c.Type) == nil:
		case c.Type == corev1.NodeNetworkUnavailable && networkReason(c.Reason): // network plugins have reasons of their own
		default:
			continue
		}
		left = append(left, c.Type)
	}
	return left
}

// networkReason reports whether hostler gives that reason in NetworkUnavailable.
func networkReason(reason string) bool {
	switch reason {
	case ReasonNetworkAvailable, ReasonNoAddress, ReasonAddressMissing, ReasonNoCarrier, ReasonNotMeasured:
		return true
	default:
		return false
	}
}

// stamp writes a time into a message, the same for as long as the time is.
func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
