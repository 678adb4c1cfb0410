package lifecycle_test

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/controlplane/controllers/lifecycle"
	"hostler.io/hostler/internal/loop"
)

// sent reports whether the signal was sent since the last call.
func sent(s loop.Signal) bool {
	select {
	case <-s:
		return true
	default:
		return false
	}
}

// TestWhichChangesOfANodeMatter has a Node that changes. What matters is decided upon at once, not only by the next
// round.
func TestWhichChangesOfANodeMatter(t *testing.T) {
	condition := func(kind corev1.NodeConditionType) func(*corev1.Node) {
		return func(n *corev1.Node) {
			n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: kind, Status: corev1.ConditionFalse})
		}
	}
	for name, c := range map[string]struct {
		edit func(*corev1.Node)
		want bool
	}{
		"a heartbeat":                {func(n *corev1.Node) { n.Status.Conditions[0].LastHeartbeatTime = metav1.Now() }, false},
		"another label":              {func(n *corev1.Node) { n.Labels["a"] = "b" }, false},
		"another UID":                {func(n *corev1.Node) { n.UID = "v" }, true},
		"another zone":               {func(n *corev1.Node) { n.Labels[corev1.LabelTopologyZone] = "z" }, true},
		"another region":             {func(n *corev1.Node) { n.Labels[corev1.LabelTopologyRegion] = "r" }, true},
		"it is excluded":             {func(n *corev1.Node) { n.Labels[lifecycle.LabelExclude] = "" }, true},
		"the time of its last taint": {func(n *corev1.Node) { n.Annotations[lifecycle.AnnotationTainted] = "2026-01-02T03:04:05Z" }, true},
		"a cordon":                   {func(n *corev1.Node) { n.Spec.Unschedulable = true }, true},
		"a taint":                    {func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "k"}} }, true},
		"it is not ready":            {func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionFalse }, true},
		"another time of Ready":      {func(n *corev1.Node) { n.Status.Conditions[0].LastTransitionTime = metav1.Now() }, true},
		"MemoryPressure":             {condition(corev1.NodeMemoryPressure), true},
		"DiskPressure":               {condition(corev1.NodeDiskPressure), true},
		"PIDPressure":                {condition(corev1.NodePIDPressure), true},
		"NetworkUnavailable":         {condition(corev1.NodeNetworkUnavailable), true},
		"a condition of others":      {condition("Custom"), false},
	} {
		t.Run(name, func(t *testing.T) {
			changed := loop.NewSignal()
			cache := lifecycle.NewCache(true, lifecycle.DefaultZoneLabels(), changed)
			node := func(version string) *corev1.Node {
				return &corev1.Node{
					ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u", ResourceVersion: version, Labels: map[string]string{}, Annotations: map[string]string{}},
					Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
				}
			}
			cache.Nodes().Set("n", node("1"))
			if !sent(changed) {
				t.Error("a new Node is no change")
			}
			now := node("2")
			c.edit(now)
			cache.Nodes().Set("n", now)
			if got := sent(changed); got != c.want {
				t.Errorf("change = %t, want %t", got, c.want)
			}
		})
	}
}

// TestWhichChangesOfALeaseMatter has a Lease that changes.
func TestWhichChangesOfALeaseMatter(t *testing.T) {
	for name, c := range map[string]struct {
		later   time.Duration
		seconds int32
		want    bool
	}{
		"a renewal":                        {10 * time.Second, 40, false},
		"another duration":                 {0, 20, true},
		"a renewal with another duration":  {10 * time.Second, 20, true},
		"a renewal that has no duration":   {10 * time.Second, 0, true},
		"the same Lease in a list of them": {0, 40, false},
	} {
		t.Run(name, func(t *testing.T) {
			changed := loop.NewSignal()
			cache := lifecycle.NewCache(true, lifecycle.DefaultZoneLabels(), changed)
			start := time.Now()
			set := func(after time.Duration, seconds int32) {
				at := metav1.NewMicroTime(start.Add(after))
				l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Spec: coordinationv1.LeaseSpec{RenewTime: &at}}
				if seconds > 0 {
					l.Spec.LeaseDurationSeconds = &seconds
				}
				cache.Leases().Set("n", l)
			}
			set(0, 40)
			if !sent(changed) {
				t.Error("a new Lease is no change")
			}
			set(c.later, c.seconds)
			if got := sent(changed); got != c.want {
				t.Errorf("change = %t, want %t", got, c.want)
			}
		})
	}
}
