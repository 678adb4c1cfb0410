//go:build integration

package e2e_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/agent/owner"
	"hostler.io/hostler/status"
	"hostler.io/hostler/test/kube"
	"hostler.io/hostler/test/lab"
)

// written returns the fields of the status, and of the rest, that hostler has written last in a
// Node, from the server's managedFields: "conditions", or "conditions hostler.io/X".
func written(t testing.TB, n *corev1.Node) []string {
	t.Helper()
	fields := map[string]bool{}
	for _, m := range n.ManagedFields {
		if m.Manager != "hostler" {
			continue
		}
		var all map[string]map[string]json.RawMessage
		check(t, json.Unmarshal(m.FieldsV1.GetRawBytes(), &all))
		for part, below := range all {
			for field, content := range below {
				if part != "f:status" || field != "f:conditions" {
					fields[part+" "+field] = true
					continue
				}
				var conditions map[string]json.RawMessage
				check(t, json.Unmarshal(content, &conditions))
				for key := range conditions {
					var kind struct{ Type string }
					if json.Unmarshal([]byte(strings.TrimPrefix(key, "k:")), &kind) == nil && kind.Type != "" {
						fields["condition "+kind.Type] = true
					}
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(fields))
}

// heartbeat returns the time of hostler's last check in the Node of a kubelet.
func (s sighting) heartbeat() time.Time { return s.own().LastHeartbeatTime.Time }

// own returns hostler's own condition.
func (s sighting) own() corev1.NodeCondition {
	for _, c := range s.node.Status.Conditions {
		if c.Type == status.ShutdownProtected {
			return c
		}
	}
	return corev1.NodeCondition{}
}

// TestBesideAKubeletOfACluster runs both as the same node.
func TestBesideAKubeletOfACluster(t *testing.T) {
	c := newCluster(t, kube.Options{ControllerManager: true, ControllerManagerFlags: []string{"--node-monitor-period=500ms", "--node-monitor-grace-period=8s"}})
	runtime := lab.ContainerdFor(t, lab.ContainerdOptions{})
	const name = "both"
	k := kube.KubeletFor(t, c.Cluster, kube.KubeletOptions{Node: name, Endpoint: runtime.Endpoint, Config: "nodeStatusUpdateFrequency: 1s\nnodeLeaseDurationSeconds: 4"})
	check(t, k.Start())
	eventually(t, "the kubelet has registered its node", func() bool { return c.node(name) != nil })
	w := c.watch(name)
	const theirs, ours, lost = "True KubeletReady", "True " + status.ReasonHostReady, "Unknown NodeStatusUnknown"
	is := func(ready string) func(sighting) bool {
		return func(s sighting) bool { return s.ready() == ready }
	}
	w.await("the kubelet is ready", 0, is(theirs))

	often := "runtimes: [{type: cri, endpoint: " + runtime.Endpoint + "}]\nlease: {duration: 4s, renewInterval: 1s}\nstatus: {updateInterval: 1s, reportInterval: 2s}\n"
	marked := ", labels: {example.com/rack: r1}, taints: [{key: example.com/new, effect: NoSchedule}], maxPods: 7"
	auto, forced := c.asNode(name, marked)+often, c.asNode(name, marked+", enabled: true")+often
	a := newAgent(t, auto)
	// twice waits until hostler has written twice since a number of sightings.
	twice := func(first int) {
		t.Helper()
		once := w.await("hostler writes its condition", first, func(s sighting) bool { return !s.heartbeat().IsZero() })
		w.await("hostler writes its condition again", first, func(s sighting) bool { return s.heartbeat().After(once.heartbeat()) })
	}
	// hostlers checks that hostler has since written only its own fields.
	hostlers := func(since time.Time) {
		t.Helper()
		requests, err := c.Requests()
		check(t, err)
		for _, r := range requests {
			own := slices.Contains([]string{"get nodes " + name, "patch nodes/status " + name}, strings.TrimSuffix(r.String(), " 200")) || r.Resource == "events"
			if strings.HasPrefix(r.UserAgent, "hostler/") && r.Time.After(since) && !own {
				t.Errorf("hostler did %q, want it to write its condition and Events, and nothing else", r)
			}
		}
	}
	began := time.Now()

	t.Run("hostler adds what is its own", func(t *testing.T) {
		first := len(w.sightings()) - 1
		a.start()
		if s := a.status(); !owned(s, owner.Kubelet, "node", "lease") {
			t.Errorf("owners = %+v, want node and lease the kubelet's", s.Owners)
		}
		twice(first)
		a.stop()
		a.start()
		twice(len(w.sightings()) - 1)
		seen := w.sightings()[first:]
		if got := readies(seen); slices.Contains(got, ours) { // a kubelet that is late is taken for lost meanwhile
			t.Errorf("Ready was %q, want it never hostler's", got)
		}
		foreign := func(taint corev1.Taint) bool {
			return taint.Key != corev1.TaintNodeNotReady && taint.Key != corev1.TaintNodeUnreachable
		} // which the cluster sets for a kubelet that is late
		before, after := seen[0].node, seen[len(seen)-1].node
		if !maps.Equal(before.Labels, after.Labels) || slices.ContainsFunc(after.Spec.Taints, foreign) || !slices.Equal(before.Status.Addresses, after.Status.Addresses) || after.Status.Capacity.Pods().Value() != 110 {
			t.Errorf("labels %v, taints %v, addresses %v, %v pods, want them the kubelet's", after.Labels, after.Spec.Taints, after.Status.Addresses, after.Status.Capacity.Pods())
		}
		var node corev1.Node
		check(t, json.Unmarshal([]byte(c.kubectl("get", "node", name, "-o", "json", "--show-managed-fields")), &node))
		if got := written(t, &node); !slices.Equal(got, []string{"condition " + string(status.ShutdownProtected)}) {
			t.Errorf("hostler has written %q, want its condition alone", got)
		}
		hostlers(began)
		eventually(t, "hostler's Events are there", func() bool {
			return strings.Contains(c.kubectl("get", "events", "-o", "jsonpath={.items[*].reportingComponent}"), "hostler")
		})
	})

	t.Run("a kubelet that does not run keeps its node", func(t *testing.T) {
		check(t, k.Stop(t.Context()))
		w.await("the cluster takes the node for lost", 0, is(lost))
		first := len(w.sightings()) - 1
		twice(first)
		a.stop() // so that the test does not wait a minute for the kubelet's return
		a.start()
		s := a.status()
		mentions(t, "evidence", s.Owners["node"].Evidence, "does not run", "node.enabled: true")
		if !owned(s, owner.Kubelet, "node", "lease") {
			t.Errorf("owners = %+v, want node and lease the kubelet's", s.Owners)
		}
		twice(len(w.sightings()) - 1)
		if got := readies(w.sightings()[first:]); slices.Contains(got, ours) {
			t.Errorf("Ready was %q, want it never hostler's", got)
		}
		hostlers(began)
		a.stop()
	})

	t.Run("a person gives the node to hostler", func(t *testing.T) {
		a.configure(forced)
		first := len(w.sightings()) - 1
		a.start()
		s := w.await("the node is hostler's", first, is(ours))
		if s.node.Labels["example.com/rack"] != "r1" {
			t.Errorf("labels = %v, want hostler's among them", s.node.Labels)
		}
		w.await("the node says that the network is there", first, network)
		a.stop()
	})

	t.Run("a kubelet takes the node over", func(t *testing.T) {
		first := len(w.sightings()) - 1
		check(t, k.Start())
		w.await("the node is the kubelet's", first, is(theirs))
		a.configure(auto)
		first = len(w.sightings()) - 1
		a.start()
		twice(first)
		w.await("what hostler left is gone", first, func(s sighting) bool { return !network(s) })
		if got := readies(w.sightings()[first:]); slices.Contains(got, ours) {
			t.Errorf("Ready was %q, want it never hostler's", got)
		}
		// A network plugin reports the network now.
		c.kubectl("patch", "node", name, "--subresource=status", "--type=strategic", "-p",
			`{"status":{"conditions":[{"type":"NetworkUnavailable","status":"False","reason":"CalicoIsUp"}]}}`)
		first = len(w.sightings()) - 1
		twice(first)
		if seen := w.sightings(); !network(seen[len(seen)-1]) {
			t.Error("hostler took a condition of somebody else's away")
		}
		a.stop()
	})
}

// network reports whether the Node has a condition about its network.
func network(s sighting) bool {
	return slices.ContainsFunc(s.node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeNetworkUnavailable })
}
