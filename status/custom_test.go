package status_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/status"
)

const raid = corev1.NodeConditionType("hostler.io/RaidDegraded")

func withCheck(a status.Answer, message string) status.Facts {
	f := healthy()
	f.Custom = []status.Custom{{Type: raid, Reason: "RaidDegraded", Answer: a, Message: message}}
	return f
}

func TestAResultOfACheckIsACondition(t *testing.T) {
	for answer, want := range map[status.Answer]struct {
		status corev1.ConditionStatus
		reason string
		event  string
	}{
		status.Passed:    {"False", "CheckPassed", "Normal NodeConditionChanged"},
		status.Problem:   {"True", "RaidDegraded", "Warning RaidDegraded"},
		status.Undecided: {"Unknown", "CheckUnknown", "Warning NodeConditionUnknown"},
		status.TimedOut:  {"Unknown", "CheckTimedOut", "Warning NodeConditionUnknown"},
		status.NotRun:    {"Unknown", "CheckNotRun", "Warning NodeConditionUnknown"},
	} {
		t.Run(answer.String(), func(t *testing.T) {
			conditions, _ := status.Conditions(withCheck(answer, "what it said"), policyOptions(), status.Memory{}, noon)
			c := condition(t, conditions, raid)
			if c.Status != want.status || c.Reason != want.reason || c.Message != "what it said" {
				t.Errorf("Conditions() = %+v, want %+v", c, want)
			}
			if last := conditions[len(conditions)-1]; last.Type != corev1.NodeReady {
				t.Errorf("Conditions() ends with %s, want Ready", last.Type)
			}
			tr := status.Transition{New: c}
			if got := tr.EventType() + " " + tr.EventReason(); got != want.event {
				t.Errorf("its Event is %s, want %s", got, want.event)
			}
			text, _ := answer.MarshalText()
			var back status.Answer
			if err := back.UnmarshalText(text); err != nil || back != answer {
				t.Errorf("UnmarshalText(%s) = %v, %v, want %v", text, back, err, answer)
			}
		})
	}
}

func TestBeforeTheFirstResultTheConditionStays(t *testing.T) {
	_, memory := status.Conditions(withCheck(status.Problem, "a disk is gone"), policyOptions(), status.Memory{}, noon)
	conditions, _ := status.Conditions(withCheck(status.NotRunYet, ""), policyOptions(), memory, noon.Add(time.Hour))
	c := condition(t, conditions, raid)
	if c.Status != "True" || c.Reason != "RaidDegraded" || c.Message != "a disk is gone" || !c.LastTransitionTime.Time.Equal(noon) {
		t.Errorf("Conditions() = %+v, want what was said, since then", c)
	}
	conditions, _ = status.Conditions(withCheck(status.NotRunYet, ""), policyOptions(), status.Memory{}, noon)
	for _, c := range conditions {
		if c.Type == raid {
			t.Errorf("Conditions() = %+v of a check that never ran, want none", c)
		}
	}
	// Without its check, the condition disappears.
	if conditions, _ = status.Conditions(healthy(), policyOptions(), memory, noon); len(conditions) != 6 {
		t.Errorf("Conditions() = %v without the check, want none of it", conditions)
	}
}

func TestAMessageAloneIsNotAChange(t *testing.T) {
	before, _ := status.Node(withCheck(status.Problem, "1 error"), policyOptions(), status.Memory{}, noon)
	for name, c := range map[string]struct {
		facts status.Facts
		want  bool
	}{
		"another message": {withCheck(status.Problem, "2 errors"), false},
		"another answer":  {withCheck(status.Undecided, "1 error"), true},
		"no check":        {healthy(), true},
	} {
		after, _ := status.Node(c.facts, policyOptions(), status.Memory{}, noon)
		if got := status.Changed(&before.Status, &after.Status); got != c.want {
			t.Errorf("%s: Changed() = %v, want %v", name, got, c.want)
		}
	}
}

// The types of every hostler are not custom ones.
func TestTypesThatAreTaken(t *testing.T) {
	conditions, _ := status.Conditions(healthy(), policyOptions(), status.Memory{}, noon)
	for _, c := range conditions {
		if status.IsCustom(c.Type) || status.CheckCustomType(string(c.Type)) == nil {
			t.Errorf("%s counts as somebody's own, want it taken", c.Type)
		}
	}
	for kind, fault := range map[string]string{
		"hostler.io/DiskFailing": "", "KernelDeadlock": "", "example.com/a.b-c": "",
		"": "qualified name", "a/b/c": "qualified name", "hostler.io/": "qualified name",
		"kubernetes.io/A": "domain of Kubernetes", "x.k8s.io/A": "domain of Kubernetes", "notk8s.io/A": "",
	} {
		err := status.CheckCustomType(kind)
		if (err == nil) != (fault == "") || err != nil && !strings.Contains(err.Error(), fault) {
			t.Errorf("CheckCustomType(%q) = %v, want %q", kind, err, fault)
		}
	}
}
