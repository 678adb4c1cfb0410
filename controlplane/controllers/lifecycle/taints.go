package lifecycle

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// byCondition has the NoSchedule taints, each with the condition that it represents.
var byCondition = []struct {
	key     string
	why     string
	applies func(*judged) bool
}{
	{corev1.TaintNodeNotReady, "Ready is False", func(j *judged) bool { return j.Conditions.Ready == corev1.ConditionFalse }},
	{corev1.TaintNodeUnreachable, "Ready is Unknown", func(j *judged) bool { return j.Conditions.Ready == corev1.ConditionUnknown }},
	{corev1.TaintNodeMemoryPressure, "MemoryPressure is True", func(j *judged) bool { return j.Conditions.MemoryPressure == corev1.ConditionTrue }},
	{corev1.TaintNodeDiskPressure, "DiskPressure is True", func(j *judged) bool { return j.Conditions.DiskPressure == corev1.ConditionTrue }},
	{corev1.TaintNodePIDPressure, "PIDPressure is True", func(j *judged) bool { return j.Conditions.PIDPressure == corev1.ConditionTrue }},
	{corev1.TaintNodeNetworkUnavailable, "NetworkUnavailable is True", func(j *judged) bool { return j.Conditions.NetworkUnavailable == corev1.ConditionTrue }},
	{corev1.TaintNodeUnschedulable, "the Node is cordoned", func(j *judged) bool { return j.Unschedulable }},
}

// noExecuteKeys are the keys of the two taints that evict pods.
var noExecuteKeys = []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable}

// has reports whether the Node has that taint from a controller. A controller sets no value. A
// taint with a value was set by a person, and is not changed.
func (h Host) has(key string, effect corev1.TaintEffect) bool {
	return slices.ContainsFunc(h.Taints, func(t corev1.Taint) bool { return t.Key == key && t.Effect == effect && t.Value == "" })
}

// setByPerson reports whether a person has set that taint. A Node can have only one taint of a key
// and effect.
func (h Host) setByPerson(key string, effect corev1.TaintEffect) bool {
	return slices.ContainsFunc(h.Taints, func(t corev1.Taint) bool { return t.Key == key && t.Effect == effect && t.Value != "" })
}

// outageTaints returns the not-ready and unreachable taints of a Node.
func (h Host) outageTaints() []corev1.Taint {
	var list []corev1.Taint
	for _, t := range h.Taints {
		if slices.Contains(noExecuteKeys, t.Key) {
			list = append(list, t)
		}
	}
	return list
}

// foreignTaints returns taints that have a key and effect of this controller, and a value. The
// controller never sets a value, so another client has set them, and they are not changed.
func (h Host) foreignTaints() []corev1.Taint {
	var foreign []corev1.Taint
	for _, t := range h.Taints {
		if owned(t.Key, t.Effect) && t.Value != "" {
			foreign = append(foreign, t)
		}
	}
	return foreign
}

// owned reports whether this controller owns a taint.
func owned(key string, effect corev1.TaintEffect) bool {
	if effect == corev1.TaintEffectNoExecute {
		return slices.Contains(noExecuteKeys, key)
	}
	if effect != corev1.TaintEffectNoSchedule {
		return false
	}
	for _, row := range byCondition {
		if row.key == key {
			return true
		}
	}
	return false
}

// taintByCondition adds and removes NoSchedule taints according to the conditions, at once.
func (j *judged) taintByCondition() {
	for _, row := range byCondition {
		taint := corev1.Taint{Key: row.key, Effect: corev1.TaintEffectNoSchedule}
		wanted, has := row.applies(j), j.has(taint.Key, taint.Effect)
		switch {
		case wanted && !has && !j.setByPerson(taint.Key, taint.Effect):
			j.add(taint, row.why)
		case !wanted && has:
			j.remove(taint, row.why+" no longer")
		}
	}
}

// taintNoExecute removes NoExecute taints whose cause has ended, and replaces one by the other. It
// reports whether the Node has to wait for a taint at the rate of its zone.
func (j *judged) taintNoExecute(allDown bool) (waits bool) {
	had := false
	for _, key := range noExecuteKeys {
		taint := corev1.Taint{Key: key, Effect: corev1.TaintEffectNoExecute}
		if !j.has(key, taint.Effect) {
			continue
		}
		switch {
		case allDown:
			j.remove(taint, "no zone has a Node that is ready")
		case key != j.noExecute:
			j.remove(taint, "its cause has ended")
			had = true
		}
	}
	if j.noExecute == "" || j.has(j.noExecute, corev1.TaintEffectNoExecute) && !allDown || j.setByPerson(j.noExecute, corev1.TaintEffectNoExecute) {
		return false
	}
	if had { // the removed taint was already counted for the rate
		j.add(corev1.Taint{Key: j.noExecute, Effect: corev1.TaintEffectNoExecute}, j.why)
		return false
	}
	return true
}
