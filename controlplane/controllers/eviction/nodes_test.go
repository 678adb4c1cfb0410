package eviction_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/controlplane/controllers/eviction"
)

// TestSinceWhenATaintCounts follows a Node with one taint, which may replace a taint that is known.
func TestSinceWhenATaintCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		at := func(ago time.Duration) *metav1.Time { added := metav1.NewTime(now.Add(-ago)); return &added }
		known := now.Add(-7 * time.Minute)
		taint := func(key, value string, added *metav1.Time) corev1.Taint {
			return corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffectNoExecute, TimeAdded: added}
		}
		for name, c := range map[string]struct {
			before, taint corev1.Taint
			listing       bool
			want          time.Time
		}{
			"the same taint":                         {before: taint("a", "v", at(time.Hour)), taint: taint("a", "v", at(time.Hour)), want: known},
			"one that replaces another":              {before: taint("a", "", at(time.Hour)), taint: taint("b", "w", at(time.Hour)), want: known},
			"the same key, another time":             {before: taint("a", "", at(time.Hour)), taint: taint("a", "", at(time.Minute)), want: now},
			"the same taint without a time":          {before: taint("a", "v", nil), taint: taint("a", "v", nil), want: known},
			"another key, without a time":            {before: taint("a", "v", nil), taint: taint("b", "v", nil), want: now},
			"another value, without a time":          {before: taint("a", "v", nil), taint: taint("a", "w", nil), want: now},
			"one that has lost its time":             {before: taint("a", "v", at(time.Hour)), taint: taint("a", "v", nil), want: now},
			"one that has got a time":                {before: taint("a", "v", nil), taint: taint("a", "v", at(time.Hour)), want: now},
			"a list with a taint from before":        {taint: taint("a", "", at(time.Hour)), listing: true, want: now.Add(-time.Hour)},
			"a list with a taint of the future":      {taint: taint("a", "", at(-time.Hour)), listing: true, want: now},
			"a list with a taint without a time":     {taint: taint("a", "", nil), listing: true, want: now},
			"a change that adds a taint from before": {taint: taint("a", "", at(time.Hour)), want: now},
		} {
			before := eviction.Host{}
			if c.before.Key != "" {
				before.Taints = []eviction.Taint{{Taint: c.before, Since: known}}
			}
			h, _ := eviction.HostOf(before, &corev1.Node{Spec: corev1.NodeSpec{Taints: []corev1.Taint{c.taint}}}, c.listing)
			if len(h.Taints) != 1 || !h.Taints[0].Since.Equal(c.want) {
				t.Errorf("%s: taints = %+v, want one that counts since %v", name, h.Taints, c.want)
			}
		}
	})
}

func TestWhichTaintsCount(t *testing.T) {
	for name, c := range map[string]struct {
		ready  corev1.ConditionStatus // empty: the Node has no status
		taint  corev1.Taint
		counts bool
	}{
		"not ready":                         {corev1.ConditionFalse, corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoExecute}, true},
		"unreachable":                       {corev1.ConditionUnknown, corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute}, true},
		"no status":                         {"", corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoExecute}, true},
		"not ready, and ready again":        {corev1.ConditionTrue, corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoExecute}, false},
		"unreachable, and ready again":      {corev1.ConditionTrue, corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute}, false},
		"a taint of a person, with a value": {corev1.ConditionTrue, corev1.Taint{Key: corev1.TaintNodeNotReady, Value: "v", Effect: corev1.TaintEffectNoExecute}, true},
		"a taint of a person":               {corev1.ConditionTrue, corev1.Taint{Key: "a", Effect: corev1.TaintEffectNoExecute}, true},
		"NoSchedule":                        {corev1.ConditionFalse, corev1.Taint{Key: "a", Effect: corev1.TaintEffectNoSchedule}, false},
	} {
		node := &corev1.Node{Spec: corev1.NodeSpec{Taints: []corev1.Taint{c.taint}}}
		if c.ready != "" {
			node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: c.ready}}
		}
		h, news := eviction.HostOf(eviction.Host{}, node, false)
		if counts := len(h.Taints) == 1; counts != c.counts || news != c.counts || h.Unknown != (c.ready == corev1.ConditionUnknown) {
			t.Errorf("%s: host = %+v, want that the taint counts: %t", name, h, c.counts)
		}
	}
}

func TestALostTaintIsNews(t *testing.T) {
	before := eviction.Host{Taints: []eviction.Taint{{Taint: corev1.Taint{Key: "a", Effect: corev1.TaintEffectNoExecute}}}}
	if h, news := eviction.HostOf(before, &corev1.Node{}, false); len(h.Taints) > 0 || !news {
		t.Errorf("host = %+v, news = %t, want no taint, and that this is news", h, news)
	}
}

// TestAPodIsMarkedBeforeItsRemoval has pods with other conditions.
func TestAPodIsMarkedBeforeItsRemoval(t *testing.T) {
	condition := func(kind corev1.PodConditionType, status corev1.ConditionStatus, reason string) corev1.PodCondition {
		return corev1.PodCondition{Type: kind, Status: status, Reason: reason}
	}
	ready := condition(corev1.PodReady, corev1.ConditionTrue, "")
	ours := condition(corev1.DisruptionTarget, corev1.ConditionTrue, "DeletionByTaintManager")
	for name, c := range map[string]struct{ before, want []corev1.PodCondition }{
		"no condition":                {nil, []corev1.PodCondition{ours}},
		"another condition":           {[]corev1.PodCondition{ready}, []corev1.PodCondition{ready, ours}},
		"it was to be removed before": {[]corev1.PodCondition{condition(corev1.DisruptionTarget, corev1.ConditionFalse, "x"), ready}, []corev1.PodCondition{ours, ready}},
		"it is to be removed anyway":  {[]corev1.PodCondition{condition(corev1.DisruptionTarget, corev1.ConditionTrue, "x")}, []corev1.PodCondition{condition(corev1.DisruptionTarget, corev1.ConditionTrue, "x")}},
	} {
		pod := &corev1.Pod{Status: corev1.PodStatus{Conditions: c.before}}
		eviction.Target(pod, metav1.Time{})
		same := func(a, b corev1.PodCondition) bool {
			return a.Type == b.Type && a.Status == b.Status && a.Reason == b.Reason
		}
		if !slices.EqualFunc(pod.Status.Conditions, c.want, same) {
			t.Errorf("%s: conditions = %+v, want %+v", name, pod.Status.Conditions, c.want)
		}
	}
}
