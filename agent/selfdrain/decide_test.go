package selfdrain_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/agent/selfdrain"
)

func texts(d selfdrain.Decision) string {
	var parts []string
	for _, c := range d.Causes {
		parts = append(parts, fmt.Sprintf("%s: %s at %v", c, c.State, c.Due))
	}
	return strings.Join(parts, "; ")
}

func TestDecide(t *testing.T) {
	const min = time.Minute
	both := selfdrain.Policy{OnTaint: true, OnLost: true, Toleration: 5 * min}
	maintenance := selfdrain.Taint{Key: "example.com/maintenance", Value: "yes", Since: 10 * min}
	old := selfdrain.Taint{Key: "old", Since: 2 * min}
	loss := &selfdrain.Loss{Since: 10 * min, Duration: 40 * time.Second}
	drainedTaint, drainedLoss := maintenance, *loss
	drainedTaint.Drained, drainedLoss.Drained = true, true
	taints := func(list ...selfdrain.Taint) selfdrain.Facts { return selfdrain.Facts{Taints: list} }
	for name, c := range map[string]struct {
		facts  selfdrain.Facts
		policy selfdrain.Policy
		now    time.Duration
		want   string
		next   time.Duration
	}{
		"without a cause there is nothing to do":  {selfdrain.Facts{}, both, 20 * min, "", 0},
		"a taint is tolerated for the toleration": {taints(maintenance), both, 14 * min, "taint example.com/maintenance=yes:NoExecute: Scheduled at 15m0s", 15 * min},
		"and not longer":                                     {taints(maintenance), both, 15 * min, "taint example.com/maintenance=yes:NoExecute: Due at 15m0s", 0},
		"a toleration of zero drains at once":                {taints(maintenance), selfdrain.Policy{OnTaint: true}, 10 * min, "taint example.com/maintenance=yes:NoExecute: Due at 10m0s", 0},
		"the first of several is the first":                  {taints(maintenance, old), both, 11 * min, "taint old:NoExecute: Due at 7m0s; taint example.com/maintenance=yes:NoExecute: Scheduled at 15m0s", 15 * min},
		"a taint that the host was drained for is done with": {taints(drainedTaint), both, 20 * min, "taint example.com/maintenance=yes:NoExecute: Drained at 15m0s", 0},
		"a taint of the configuration is the host's own":     {taints(maintenance), selfdrain.Policy{OnTaint: true, Own: []corev1.Taint{{Key: maintenance.Key, Effect: corev1.TaintEffectNoExecute}}}, 20 * min, "", 0},
		"but one of another effect is not the same":          {taints(maintenance), selfdrain.Policy{OnTaint: true, Own: []corev1.Taint{{Key: maintenance.Key, Effect: corev1.TaintEffectNoSchedule}}}, 20 * min, "taint example.com/maintenance=yes:NoExecute: Due at 10m0s", 0},
		"without node.onTaint nothing is done":               {selfdrain.Facts{Taints: []selfdrain.Taint{maintenance}}, selfdrain.Policy{OnLost: true}, 20 * min, "", 0},
		"a renewal that fails is no news":                    {selfdrain.Facts{Loss: loss}, both, 10*min + 39*time.Second, "", 10*min + 40*time.Second},
		"the end of the Lease is":                            {selfdrain.Facts{Loss: loss}, both, 10*min + 40*time.Second, "lease not renewed: Scheduled at 15m40s", 15*min + 40*time.Second},
		"a Lease is lost when its toleration is over":        {selfdrain.Facts{Loss: loss}, both, 15*min + 40*time.Second, "lease not renewed: Due at 15m40s", 0},
		"once": {selfdrain.Facts{Loss: &drainedLoss}, both, time.Hour, "lease not renewed: Drained at 15m40s", 0},
		"without lease.onLost nothing is done of that":        {selfdrain.Facts{Loss: loss}, selfdrain.Policy{OnTaint: true}, time.Hour, "", 0},
		"a loss of an earlier agent counts after ten seconds": {selfdrain.Facts{Loss: loss, LeaseHeldUntil: 15 * min}, both, 15*min + 50*time.Second, "lease not renewed: Due at 15m40s", 0},
		"a loss of an earlier agent waits for a renewal":      {selfdrain.Facts{Loss: loss, LeaseHeldUntil: 16 * min}, both, 15*min + 50*time.Second, "lease not renewed: Held at 15m40s", 16 * min},
	} {
		d := selfdrain.Decide(c.facts, c.policy, c.now)
		if got := texts(d); got != c.want || d.Next != c.next {
			t.Errorf("%s: Decide() = %q, next at %v, want %q, next at %v", name, got, d.Next, c.want, c.next)
		}
	}
}
