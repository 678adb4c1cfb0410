package lifecycle

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AnnotationTainted is when the Node last got a NoExecute taint at the rate of its zone, in RFC
// 3339 with nanoseconds. It stays when the taint is removed, so that a server that starts later
// keeps to the rate.
const AnnotationTainted = "hostler.io/no-execute-added"

// silentConditions are the conditions that are set to Unknown if the host gives no sign of life.
var silentConditions = []corev1.NodeConditionType{corev1.NodeReady, corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure}

// The reasons of conditions are those of Kubernetes' node lifecycle controller.
const (
	reasonStopped = "NodeStatusUnknown"
	reasonNever   = "NodeStatusNeverUpdated"
)

// Apply changes the Node.
func (c Change) Apply(node *corev1.Node, now time.Time) {
	if c.Unknown {
		for _, kind := range silentConditions {
			setUnknown(node, kind, metav1.NewTime(now).Rfc3339Copy())
		}
	}
	removed := func(t corev1.Taint) bool {
		return t.Value == "" && slices.ContainsFunc(c.Remove, func(r corev1.Taint) bool { return t.MatchTaint(&r) })
	}
	replaced := c.replacedSince(node)
	node.Spec.Taints = slices.DeleteFunc(slices.Clone(node.Spec.Taints), removed)
	for _, taint := range c.Add {
		added := metav1.NewTime(now).Rfc3339Copy()
		taint.TimeAdded = &added
		if replaced != nil && taint.Effect == corev1.TaintEffectNoExecute {
			taint.TimeAdded = replaced
		}
		node.Spec.Taints = append(node.Spec.Taints, taint)
	}
	if c.NoExecute() {
		if node.Annotations == nil {
			node.Annotations = map[string]string{}
		}
		node.Annotations[AnnotationTainted] = now.UTC().Format(time.RFC3339Nano)
	}
}

// replacedSince returns when the NoExecute taint that the change removes was added; nil if it
// removes none. The taint that replaces it keeps this time, because evictions count from it.
func (c Change) replacedSince(node *corev1.Node) *metav1.Time {
	for _, t := range node.Spec.Taints {
		if t.Effect == corev1.TaintEffectNoExecute && slices.ContainsFunc(c.Remove, func(r corev1.Taint) bool { return t.MatchTaint(&r) }) {
			return t.TimeAdded
		}
	}
	return nil
}

// setUnknown sets a condition to Unknown. It keeps LastHeartbeatTime, which shows when the host
// last reported.
func setUnknown(node *corev1.Node, kind corev1.NodeConditionType, now metav1.Time) {
	found := false
	for i := range node.Status.Conditions { // another client may have written one type twice
		condition := &node.Status.Conditions[i]
		if condition.Type != kind {
			continue
		}
		found = true
		if condition.Status == corev1.ConditionUnknown {
			continue
		}
		condition.Status, condition.LastTransitionTime = corev1.ConditionUnknown, now
		condition.Reason, condition.Message = reasonStopped, "the host no longer renews its Lease"
	}
	if !found {
		node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{
			Type: kind, Status: corev1.ConditionUnknown, LastTransitionTime: now,
			Reason: reasonNever, Message: "the host never reported its status",
		})
	}
}
