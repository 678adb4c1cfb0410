package eviction

import (
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
)

// longest limits a toleration: a longer one could overflow when it is added to a time. One without a limit is forever.
const longest, forever = 100 * 365 * 24 * time.Hour, time.Duration(math.MaxInt64)

// tolerate returns how long a pod tolerates each taint. The first matching toleration counts, as in Kubernetes. A host
// chooses taints and tolerations, so each pair costs no more than a comparison.
func tolerate(tolerations []corev1.Toleration, taints []Taint) []time.Duration {
	waits, left := make([]time.Duration, len(taints)), make([]int, len(taints))
	for i := range left {
		left[i] = i
	}
	for _, t := range tolerations {
		matches := matcher(t)
		left = slices.DeleteFunc(left, func(i int) bool {
			switch {
			case !matches(&taints[i]):
				return false
			case t.TolerationSeconds == nil:
				waits[i] = forever
			default:
				waits[i] = time.Duration(min(max(*t.TolerationSeconds, 0), int64(longest/time.Second))) * time.Second
			}
			return true
		})
	}
	return waits
}

// matcher returns what reports whether a toleration matches a taint, as Kubernetes does it: that also parses both
// values for each comparison.
func matcher(t corev1.Toleration) func(*Taint) bool {
	operator := t.Operator
	if operator != corev1.TolerationOpLt && operator != corev1.TolerationOpGt {
		return func(taint *Taint) bool { return t.ToleratesTaint(logr.Discard(), &taint.Taint, false) }
	}
	limit := number(t.Value)
	t.Operator = corev1.TolerationOpExists
	return func(taint *Taint) bool {
		if limit == nil || taint.number == nil || !t.ToleratesTaint(logr.Discard(), &taint.Taint, false) {
			return false
		}
		return operator == corev1.TolerationOpLt && *taint.number < *limit || operator == corev1.TolerationOpGt && *taint.number > *limit
	}
}

// numbered returns taints with their numbers.
func numbered(taints []Taint) []Taint {
	taints = slices.Clone(taints)
	for i := range taints {
		taints[i].number = number(taints[i].Value)
	}
	return taints
}

// number is what the operators Lt and Gt compare; nil if they match no such value.
func number(value string) *int64 {
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || strconv.FormatInt(n, 10) != value {
		return nil
	}
	return &n
}
