package cli

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/agent/api"
)

// conditions returns the Node's conditions, grouped by status. Wide output has their times and
// reasons in its own table. The problems at the top explain the abnormal ones.
func conditions(out *output, s api.Status) string {
	if s.Node == nil || out.wide() {
		return ""
	}
	by := map[corev1.ConditionStatus][]string{}
	for _, c := range s.Node.Status.Conditions {
		by[c.Status] = append(by[c.Status], string(c.Type))
	}
	var parts []string
	for _, status := range []corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown} {
		if types := by[status]; len(types) > 0 {
			parts = append(parts, string(status)+": "+strings.Join(types, ", "))
		}
	}
	return strings.Join(parts, "; ")
}

func printConditions(t *table, out *output, s api.Status) {
	if s.Node == nil {
		return
	}
	t.line("")
	t.row("CONDITION", "STATUS", "SINCE", "REASON", "MESSAGE")
	for _, c := range s.Node.Status.Conditions {
		t.row(string(c.Type), string(c.Status), out.ago(c.LastTransitionTime.Time), c.Reason, t.cell(c.Message))
	}
}
