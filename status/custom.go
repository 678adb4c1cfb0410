package status

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Custom is the result of a custom check.
type Custom struct {
	Type    corev1.NodeConditionType
	Reason  string // of the condition while there is a problem
	Answer  Answer
	Message string
}

// Answer is the kind of a check's result.
type Answer int

// The answers of a check, and reasons why there is none.
const (
	NotRunYet Answer = iota // not since the agent was started
	Passed                  // no problem found
	Problem                 // problem found
	Undecided               // unknown
	TimedOut                // it did not end in time
	NotRun                  // not run, or not startable
)

// String returns the answer's name in metrics and JSON.
func (a Answer) String() string {
	switch a {
	case Passed:
		return "passed"
	case Problem:
		return "problem"
	case Undecided:
		return "unknown"
	case TimedOut:
		return "timeout"
	case NotRun:
		return "not-run"
	default:
		return "not-asked"
	}
}

// MarshalText returns String.
func (a Answer) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText parses the result of MarshalText.
func (a *Answer) UnmarshalText(text []byte) error {
	for known := NotRunYet; known <= NotRun; known++ {
		if known.String() == string(text) {
			*a = known
			return nil
		}
	}
	return fmt.Errorf("%q is not a valid result of a check", text)
}

// custom returns the condition of one check: True is a problem. Until the first result, the
// condition from before the agent's restart stays. Without one, known is false.
func custom(c Custom, last *corev1.NodeCondition) (f finding, known bool) {
	switch c.Answer {
	case NotRunYet:
		if last == nil {
			return f, false
		}
		return finding{last.Status, last.Reason, last.Message}, true
	case Passed:
		return finding{corev1.ConditionFalse, ReasonCheckPassed, c.Message}, true
	case Problem:
		return finding{corev1.ConditionTrue, c.Reason, c.Message}, true
	case TimedOut:
		return finding{corev1.ConditionUnknown, ReasonCheckTimedOut, c.Message}, true
	case NotRun:
		return finding{corev1.ConditionUnknown, ReasonCheckNotRun, c.Message}, true
	default:
		return finding{corev1.ConditionUnknown, ReasonCheckUnknown, c.Message}, true
	}
}

// IsCustom reports whether a condition type is not one of those that every hostler has.
func IsCustom(kind corev1.NodeConditionType) bool {
	switch kind {
	case corev1.NodeReady, corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure, corev1.NodeNetworkUnavailable, ShutdownProtected,
		CPUContention, MemoryContention, IOContention:
		return false
	default:
		return true
	}
}

// CheckCustomType returns why a type is not valid for a custom condition.
func CheckCustomType(kind string) error {
	if len(validation.IsQualifiedName(kind)) > 0 { // its errors contain regular expressions
		return fmt.Errorf("%q is not a qualified name, such as hostler.io/DiskFailing: write DOMAIN/NAME, the domain in lower case, the name of letters, digits, '.', '-' and '_'", kind)
	}
	if !IsCustom(corev1.NodeConditionType(kind)) {
		return fmt.Errorf("%s is a condition that hostler or a kubelet reports itself; choose another name", kind)
	}
	domain, _, qualified := strings.Cut(kind, "/")
	for _, theirs := range []string{"kubernetes.io", "k8s.io"} {
		if qualified && (domain == theirs || strings.HasSuffix(domain, "."+theirs)) {
			return fmt.Errorf("%s is in a domain of Kubernetes; choose hostler.io/ or your own domain", kind)
		}
	}
	return nil
}
