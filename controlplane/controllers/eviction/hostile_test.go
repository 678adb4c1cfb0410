package eviction_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controllers/eviction"
	"hostler.io/hostler/controlplane/controllers/podcache"
)

// hostile returns a host with as many taints as are read, and pods with as many tolerations that match none of them.
func hostile(pods int, toleration corev1.Toleration) eviction.Host {
	h := eviction.Host{Name: "m"}
	var tolerations []corev1.Toleration
	for i := range controlplane.MostEntries {
		h.Taints = append(h.Taints, eviction.Taint{Taint: corev1.Taint{Key: "a", Value: fmt.Sprintf("v%d", i), Effect: corev1.TaintEffectNoExecute}})
		tolerations = append(tolerations, toleration)
	}
	for i := range pods {
		h.Pods = append(h.Pods, podcache.Pod{Name: fmt.Sprintf("m/shop/p%d", i), Tolerations: tolerations})
	}
	return h
}

// TestTolerationsThatMatchNothingAreCheap counts what a decision allocates.
func TestTolerationsThatMatchNothingAreCheap(t *testing.T) {
	for _, toleration := range []corev1.Toleration{
		{Operator: corev1.TolerationOpLt, Value: "x"}, {Operator: corev1.TolerationOpGt, Value: "5"}, {Key: "a", Value: "x"},
	} {
		const pods = 10
		hosts := []eviction.Host{hostile(pods, toleration)}
		allocations := testing.AllocsPerRun(1, func() { eviction.Decide(hosts, time.Time{}) })
		if most := float64(10 * pods * controlplane.MostEntries); allocations > most {
			t.Errorf("tolerations %+v: %v allocations, want at most %v: not one for each taint and toleration of a pod", toleration, allocations, most)
		}
	}
}

// TestTolerationsMatchAsInKubernetes compares with its own function.
func TestTolerationsMatchAsInKubernetes(t *testing.T) {
	values := []string{"", "0", "-0", "5", "-5", "05", "+5", "1_0", "x", "9223372036854775807", "9223372036854775808", "-9223372036854775808"}
	for _, operator := range []corev1.TolerationOperator{"", corev1.TolerationOpEqual, corev1.TolerationOpExists, corev1.TolerationOpLt, corev1.TolerationOpGt, "other"} {
		for _, key := range []string{"", "a", "b"} {
			for _, effect := range []corev1.TaintEffect{"", corev1.TaintEffectNoExecute, corev1.TaintEffectNoSchedule} {
				for _, value := range values {
					for _, taintValue := range values {
						toleration := corev1.Toleration{Key: key, Operator: operator, Value: value, Effect: effect}
						taint := corev1.Taint{Key: "a", Value: taintValue, Effect: corev1.TaintEffectNoExecute}
						d := eviction.Decide([]eviction.Host{{
							Name: "n", Taints: []eviction.Taint{{Taint: taint}}, Pods: []podcache.Pod{{Name: "ns/p", Tolerations: []corev1.Toleration{toleration}}},
						}}, time.Time{})
						if got, want := len(d.Now) == 0, toleration.ToleratesTaint(logr.Discard(), &taint, true); got != want {
							t.Errorf("toleration %+v of taint %s = %v, want %v", toleration, taint.ToString(), got, want)
						}
					}
				}
			}
		}
	}
}

// BenchmarkHostile decides about one host with as many taints, pods and tolerations as are read.
func BenchmarkHostile(b *testing.B) {
	for name, toleration := range map[string]corev1.Toleration{
		"Lt": {Operator: corev1.TolerationOpLt, Value: "x"}, "Gt": {Operator: corev1.TolerationOpGt, Value: "5"}, "Equal": {Key: "a", Value: "x"},
	} {
		b.Run(name, func(b *testing.B) {
			hosts := []eviction.Host{hostile(340, toleration)}
			for b.Loop() {
				eviction.Decide(hosts, time.Time{})
			}
		})
	}
}
