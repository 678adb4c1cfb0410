package reboots_test

import (
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controllers/reboots"
)

// TestSinceWhenANodeSaysSomething changes a Node a minute after it was first seen.
func TestSinceWhenANodeSaysSomething(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := metav1.NewTime(time.Now().UTC().Truncate(time.Second))
		says := controlplane.RebootRequest{ID: "r1", Step: controlplane.RebootDraining, Since: start, Wanted: start}
		node := func() *corev1.Node {
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "u"}}
			n.Status.NodeInfo.BootID = "b"
			setReady(corev1.ConditionTrue)(n)
			setRequest(n, says)
			setSlotText(n, &controlplane.RebootSlot{ID: "r1", Why: "emptying"})
			return n
		}
		asks := func(change func(*controlplane.RebootRequest)) func(*corev1.Node) {
			return func(n *corev1.Node) { r := says; change(&r); setRequest(n, r) }
		}
		before, _ := reboots.HostOf(reboots.Host{}, node(), false)
		time.Sleep(time.Minute)
		now := time.Now()
		const quiet, news = false, true
		for name, c := range map[string]struct {
			change           func(*corev1.Node)
			news             bool
			seen, step       bool // the request, and its step, are new
			slot, boot, dead bool
		}{
			"nothing":                 {func(*corev1.Node) {}, quiet, false, false, false, false, false},
			"another label":           {func(n *corev1.Node) { n.Labels = map[string]string{"x": "y"} }, quiet, false, false, false, false, false},
			"another Node":            {func(n *corev1.Node) { n.UID = "v" }, news, true, true, true, true, false},
			"another boot":            {func(n *corev1.Node) { n.Status.NodeInfo.BootID = "c" }, news, false, false, false, true, false},
			"another request":         {asks(func(r *controlplane.RebootRequest) { r.ID = "r2" }), news, true, true, false, false, false},
			"another step":            {asks(func(r *controlplane.RebootRequest) { r.Step = controlplane.RebootWaiting }), news, false, true, false, false, false},
			"the same step once more": {asks(func(r *controlplane.RebootRequest) { r.Since = metav1.NewTime(start.Add(time.Second)) }), news, false, true, false, false, false},
			"another message":         {asks(func(r *controlplane.RebootRequest) { r.Message = "x" }), news, false, false, false, false, false},
			"another answer":          {func(n *corev1.Node) { setSlotText(n, &controlplane.RebootSlot{ID: "r1", Why: "blocked"}) }, news, false, false, true, false, false},
			"a cordon":                {func(n *corev1.Node) { n.Spec.Unschedulable = true }, news, false, false, false, false, false},
			"it is Unknown":           {setReady(corev1.ConditionUnknown), news, false, false, false, false, true},
			"it is not ready":         {setReady(corev1.ConditionFalse), news, false, false, false, false, false},
			"another group":           {func(n *corev1.Node) { n.Labels = map[string]string{controlplane.LabelRebootGroup: "x"} }, news, false, false, false, false, false},
			"another Node and request": {func(n *corev1.Node) {
				n.UID = "v"
				setRequest(n, controlplane.RebootRequest{ID: "r2", Step: controlplane.RebootWaiting})
			}, news, true, true, true, true, false},
		} {
			n := node()
			c.change(n)
			h, news := reboots.HostOf(before, n, false)
			for what, is := range map[string]struct{ got, want bool }{
				"news": {news, c.news}, "a new request": {h.Seen.Equal(now), c.seen}, "a new step": {h.StepSince.Equal(now), c.step},
				"a new answer": {h.SlotSince.Equal(now), c.slot}, "a new boot": {h.BootSince.Equal(now), c.boot}, "dead": {h.Dead, c.dead},
			} {
				if is.got != is.want {
					t.Errorf("%s: %s: %t, want %t", name, what, is.got, is.want)
				}
			}
		}
	})
}

// TestTheAgeOfAStepInAList has a step whose start is from the clock of its host.
func TestTheAgeOfAStepInAList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		for age, c := range map[time.Duration]struct {
			listing bool
			want    time.Duration
		}{
			time.Hour:                  {true, time.Hour},
			time.Hour + time.Second:    {false, 0}, // the server has seen the change
			24*time.Hour - time.Second: {true, 24*time.Hour - time.Second},
			24 * time.Hour:             {true, 0}, // the clock is wrong
			-time.Hour:                 {true, 0},
		} {
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: types.UID("u")}}
			setRequest(n, controlplane.RebootRequest{ID: "r1", Step: controlplane.RebootDraining, Since: metav1.NewTime(now.Add(-age))})
			if h, _ := reboots.HostOf(reboots.Host{}, n, c.listing); now.Sub(h.StepSince) != c.want {
				t.Errorf("a step that is %v old, listed %t: counts for %v, want %v", age, c.listing, now.Sub(h.StepSince), c.want)
			}
		}
	})
}
