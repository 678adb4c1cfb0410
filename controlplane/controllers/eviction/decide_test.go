package eviction_test

import (
	"math"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane/controllers/eviction"
	"hostler.io/hostler/controlplane/controllers/podcache"
)

// tolerates returns a toleration of a NoExecute taint, for seconds unless they are negative.
func tolerates(key string, seconds int64) corev1.Toleration {
	t := corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}
	if seconds >= 0 {
		t.TolerationSeconds = &seconds
	}
	return t
}

func TestDecide(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	taint := func(key, value string, ago time.Duration) eviction.Taint {
		return eviction.Taint{Taint: corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffectNoExecute}, Since: now.Add(-ago)}
	}
	const never = time.Duration(math.MaxInt64)
	negative := tolerates("a", 0)
	*negative.TolerationSeconds = -5
	endless := tolerates("a", math.MaxInt64)
	for name, c := range map[string]struct {
		taints      []eviction.Taint
		tolerations []corev1.Toleration
		gone        bool
		pod         podcache.Pod
		in          time.Duration // until the pod is evicted; or never
	}{
		"a Node without such taints evicts nothing":                {in: never},
		"a pod that does not tolerate the taint goes at once":      {taints: []eviction.Taint{taint("a", "", time.Second)}, in: 0},
		"a pod that tolerates another taint goes at once":          {taints: []eviction.Taint{taint("a", "", time.Second)}, tolerations: []corev1.Toleration{tolerates("b", -1)}, in: 0},
		"a pod that tolerates the taint stays":                     {taints: []eviction.Taint{taint("a", "", time.Hour)}, tolerations: []corev1.Toleration{tolerates("a", -1)}, in: never},
		"a toleration of everything is one of this taint":          {taints: []eviction.Taint{taint("a", "v", time.Hour)}, tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}}, in: never},
		"a toleration of NoSchedule is none of NoExecute":          {taints: []eviction.Taint{taint("a", "", time.Hour)}, tolerations: []corev1.Toleration{{Key: "a", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}}, in: 0},
		"a toleration of another value is none of this one":        {taints: []eviction.Taint{taint("a", "v", time.Hour)}, tolerations: []corev1.Toleration{{Key: "a", Value: "w", Effect: corev1.TaintEffectNoExecute}}, in: 0},
		"a pod stays for its tolerationSeconds":                    {taints: []eviction.Taint{taint("a", "", 100*time.Second)}, tolerations: []corev1.Toleration{tolerates("a", 300)}, in: 200 * time.Second},
		"a pod goes when its tolerationSeconds are over":           {taints: []eviction.Taint{taint("a", "", 301*time.Second)}, tolerations: []corev1.Toleration{tolerates("a", 300)}, in: 0},
		"negative tolerationSeconds are 0":                         {taints: []eviction.Taint{taint("a", "", 0)}, tolerations: []corev1.Toleration{negative}, in: 0},
		"tolerationSeconds that no time can hold are a long time":  {taints: []eviction.Taint{taint("a", "", 0)}, tolerations: []corev1.Toleration{endless}, in: 100 * 365 * 24 * time.Hour},
		"of several taints the one that ends first counts":         {taints: []eviction.Taint{taint("a", "", 0), taint("b", "", 0)}, tolerations: []corev1.Toleration{tolerates("a", 300), tolerates("b", 30)}, in: 30 * time.Second},
		"each taint counts from its own time":                      {taints: []eviction.Taint{taint("a", "", 290*time.Second), taint("b", "", 0)}, tolerations: []corev1.Toleration{tolerates("a", 300), tolerates("b", 30)}, in: 10 * time.Second},
		"a taint that is tolerated for ever does not keep another": {taints: []eviction.Taint{taint("a", "", 0), taint("b", "", 0)}, tolerations: []corev1.Toleration{tolerates("a", -1), tolerates("b", 30)}, in: 30 * time.Second},
		"of several tolerations the first that matches counts":     {taints: []eviction.Taint{taint("a", "", 0)}, tolerations: []corev1.Toleration{tolerates("a", 30), tolerates("a", -1)}, in: 30 * time.Second},
		"a pod that is being deleted is left alone":                {taints: []eviction.Taint{taint("a", "", time.Hour)}, pod: podcache.Pod{Deleting: true}, in: never},
		"a pod that has ended is left alone":                       {taints: []eviction.Taint{taint("a", "", time.Hour)}, pod: podcache.Pod{Ended: true}, in: never},
		"a pod whose Node does not exist is removed":               {gone: true, tolerations: []corev1.Toleration{tolerates("", -1)}, in: 0},
		"also one that is being deleted":                           {gone: true, pod: podcache.Pod{Deleting: true}, in: 0},
		"but not one that finalizers hold":                         {gone: true, pod: podcache.Pod{Deleting: true, Held: true}, in: never},
	} {
		t.Run(name, func(t *testing.T) {
			pod := c.pod
			pod.Name, pod.UID, pod.Version, pod.Node, pod.Tolerations = "ns/p", "u", "7", "n", c.tolerations
			d := eviction.Decide([]eviction.Host{{Name: "n", UID: "nu", Gone: c.gone, Taints: c.taints, Pods: []podcache.Pod{pod}}}, now)
			if deleting := d.Deleting["n"] == 1; deleting != pod.Deleting {
				t.Errorf("pods that are being deleted = %v, want this one: %t", d.Deleting, pod.Deleting)
			}
			switch {
			case c.in == never:
				if len(d.Now)+len(d.Pending) > 0 || !d.Next.IsZero() {
					t.Errorf("Decide() = %+v, want nothing", d)
				}
			case c.in == 0:
				if len(d.Now) != 1 || len(d.Pending) > 0 {
					t.Fatalf("Decide() = %+v, want one eviction now", d)
				}
				if e := d.Now[0]; e.Object() != "pods/ns/p" || e.Version() != "7" || e.UID != "u" || e.NodeUID != "nu" || e.Reason == "" || (e.Taint == nil) != c.gone {
					t.Errorf("eviction = %+v, want that of the pod, with a reason", e)
				}
			default:
				if len(d.Now) > 0 || len(d.Pending) != 1 || !d.Pending[0].Due.Equal(now.Add(c.in)) || !d.Next.Equal(now.Add(c.in)) {
					t.Errorf("Decide() = %+v, want one eviction in %v", d, c.in)
				}
			}
		})
	}
}

func TestTheLongestOverduePodIsEvictedFirst(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	host := func(name string, ago time.Duration) eviction.Host {
		return eviction.Host{
			Name:   name,
			Taints: []eviction.Taint{{Taint: corev1.Taint{Key: "a", Effect: corev1.TaintEffectNoExecute}, Since: now.Add(-ago)}},
			Pods:   []podcache.Pod{{Name: "ns/" + name, Node: name}},
		}
	}
	d := eviction.Decide([]eviction.Host{host("late", time.Second), host("early", time.Minute), host("later", 0)}, now)
	var order []string
	for _, e := range d.Now {
		order = append(order, e.Node)
	}
	if len(order) != 3 || order[0] != "early" || order[1] != "late" || order[2] != "later" {
		t.Errorf("order = %v, want early, late, later", order)
	}
}

func TestWhyAPodIsEvicted(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	taints := []eviction.Taint{{Taint: corev1.Taint{Key: "a", Effect: corev1.TaintEffectNoExecute}, Since: now.Add(-time.Minute)}}
	for name, c := range map[string]struct {
		host           eviction.Host
		tolerations    []corev1.Toleration
		action, reason string
	}{
		"its Node is gone":          {eviction.Host{Gone: true}, nil, "remove the pod's object", "its Node does not exist any more"},
		"no toleration":             {eviction.Host{Taints: taints}, nil, "evict the pod", "Node n has the taint a:NoExecute, which the pod does not tolerate"},
		"a toleration for no time":  {eviction.Host{Taints: taints}, []corev1.Toleration{tolerates("a", 0)}, "evict the pod", "Node n has the taint a:NoExecute, which the pod does not tolerate"},
		"a toleration that is over": {eviction.Host{Taints: taints}, []corev1.Toleration{tolerates("a", 30)}, "evict the pod", "Node n has the taint a:NoExecute, which the pod tolerates for 30s"},
	} {
		c.host.Name, c.host.Pods = "n", []podcache.Pod{{Name: "ns/p", Tolerations: c.tolerations}}
		d := eviction.Decide([]eviction.Host{c.host}, now)
		if len(d.Now) != 1 || d.Now[0].Action() != c.action || d.Now[0].Reason != c.reason {
			t.Errorf("%s: Decide() = %+v, want to %s: %s", name, d.Now, c.action, c.reason)
		}
	}
}
