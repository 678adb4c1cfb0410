//go:build integration

package e2e_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/test/etcd"
	"hostler.io/hostler/test/kube"
)

// engine is a store with Nodes that no agent reports.
type engine interface {
	served(more string) string
	create(node *corev1.Node)
	report(name string, status corev1.NodeStatus)
	node(name string) *corev1.Node
	becomes(name string, ready corev1.ConditionStatus, taints string)
}

func (f etcdFleet) create(node *corev1.Node) {
	f.t.Helper()
	text, err := json.Marshal(node)
	check(f.t, err)
	f.ctl("put", "/hostler/nodes/"+node.Name, string(text))
}

func (f etcdFleet) report(name string, status corev1.NodeStatus) {
	f.t.Helper()
	f.change(name, func(node *corev1.Node) { node.Status = status })
}

func (c cluster) create(node *corev1.Node) {
	c.t.Helper()
	text, err := json.Marshal(node)
	check(c.t, err)
	check(c.t, c.Apply(within(c.t), string(text)))
	c.report(node.Name, node.Status)
}

func (c cluster) report(name string, status corev1.NodeStatus) {
	c.t.Helper()
	text, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": status.Conditions}})
	check(c.t, err)
	c.kubectl("patch", "node", name, "--subresource=status", "--type=merge", "--patch", string(text))
}

// readyIs returns the status of a host with that condition.
func readyIs(ready corev1.ConditionStatus) corev1.NodeStatus {
	now := metav1.Now()
	return corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready, Reason: "Test", LastHeartbeatTime: now, LastTransitionTime: now}}}
}

// TestARealStoreHasTheRatesOfItsZones has three zones: one with few hosts that are not ready, one
// with many, and one where none is ready.
func TestARealStoreHasTheRatesOfItsZones(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(*testing.T) engine{
		"etcd":       func(t *testing.T) engine { return newFleet(t, etcd.Options{}) },
		"kubernetes": func(t *testing.T) engine { return newCluster(t, kube.Options{}) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := open(t)
			var all []string
			for zone, hosts := range map[string]struct{ all, notReady int }{"normal": {4, 2}, "partial": {5, 3}, "dead": {2, 2}} {
				for i := range hosts.all {
					node := &corev1.Node{
						TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
						ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s%d", zone, i), Labels: map[string]string{corev1.LabelTopologyZone: zone}},
						Status:     readyIs(corev1.ConditionTrue),
					}
					if i < hosts.notReady {
						node.Status = readyIs(corev1.ConditionFalse)
					}
					e.create(node)
					all = append(all, node.Name)
				}
			}
			s := startServer(t, e.served("nodeLifecycle: {evictionRate: 0.5, secondaryEvictionRate: 0.25, largeFleetSizeThreshold: 5, deadZone: pause, gracePeriod: 1h, startupGracePeriod: 1h}"))
			const tainted = "not-ready:NoExecute not-ready:NoSchedule"
			for zone, least := range map[string]time.Duration{"normal": 2 * time.Second, "partial": 4 * time.Second} {
				var added []time.Time
				for i := range map[string]int{"normal": 2, "partial": 3}[zone] {
					host := fmt.Sprintf("%s%d", zone, i)
					e.becomes(host, corev1.ConditionFalse, tainted)
					for _, taint := range e.node(host).Spec.Taints {
						if taint.Effect == corev1.TaintEffectNoExecute {
							added = append(added, taint.TimeAdded.Time)
						}
					}
				}
				slices.SortFunc(added, time.Time.Compare)
				for i := range added[1:] {
					if apart := added[i+1].Sub(added[i]); apart < least {
						t.Errorf("NoExecute taints of zone %s were added at %v, want %v apart at least", zone, added, least)
					}
				}
			}
			for _, host := range []string{"dead0", "dead1"} {
				e.becomes(host, corev1.ConditionFalse, "not-ready:NoSchedule")
			}
			mentions(t, "hostler fleet status", onOneLine(s.prints("status")), "normal Normal 4 2 0.5/s", "partial PartialDisruption 5 3 0.25/s", "dead FullDisruption 2 2 paused")

			// No zone has a ready host: a problem of the server is more likely than one of all hosts.
			for _, host := range all {
				e.report(host, readyIs(corev1.ConditionFalse))
			}
			for _, host := range all {
				e.becomes(host, corev1.ConditionFalse, "not-ready:NoSchedule")
			}
			if plan := s.prints("plan"); strings.Contains(plan, "\nnow") || strings.Contains(plan, "\nin ") {
				t.Errorf("the plan while no zone has a ready host is\n%s\nwant all paused", plan)
			}
		})
	}
}
