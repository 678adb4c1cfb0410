//go:build integration

package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/test/kube"
)

// cluster is a control plane of a fleet.
type cluster struct {
	*kube.Cluster
	t *testing.T
}

func newCluster(t *testing.T, o kube.Options) cluster { return cluster{kube.For(t, o), t} }

// kubectl asks as the administrator.
func (c cluster) kubectl(args ...string) string {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	out, err := c.Kubectl(ctx, args...)
	check(c.t, err)
	return out
}

// node is the Node as it is stored; nil if there is none.
func (c cluster) node(name string) *corev1.Node {
	c.t.Helper()
	var list corev1.NodeList
	check(c.t, json.Unmarshal([]byte(c.kubectl("get", "nodes", "-o", "json")), &list))
	for _, n := range list.Items {
		if n.Name == name {
			return &n
		}
	}
	return nil
}

// asNode is the configuration of an agent with the credentials of that node.
func (c cluster) asNode(name, more string) string {
	c.t.Helper()
	file, err := c.NodeKubeconfig(name)
	check(c.t, err)
	return fmt.Sprintf("controlPlane: {type: kubernetes, kubernetes: {kubeconfig: %s}}\nnode: {name: %s%s}\n", file, name, more)
}

// TestANodeOfACluster is a host's life as the cluster sees it.
func TestANodeOfACluster(t *testing.T) {
	t.Parallel()
	c := newCluster(t, kube.Options{ControllerManager: true, ControllerManagerFlags: []string{"--node-monitor-period=500ms", "--node-monitor-grace-period=6s"}})
	const lease = "lease: {duration: 4s, renewInterval: 1s}\nstatus: {updateInterval: 1s}\n"
	a := startAgent(t, c.asNode("rack1-node1", ", labels: {example.com/rack: r1}, taints: [{key: example.com/new, effect: NoSchedule}]")+lease)
	ready := func(want corev1.ConditionStatus) func() bool {
		return func() bool {
			node := c.node("rack1-node1")
			return node != nil && condition(api.Status{Node: node}, corev1.NodeReady).Status == want
		}
	}
	eventually(t, "the cluster sees the node Ready", ready(corev1.ConditionTrue))
	mentions(t, "kubectl get node -o wide", c.kubectl("get", "node", "rack1-node1", "-o", "wide"), "rack1-node1", " Ready", "containerd://")
	mentions(t, "kubectl describe node", c.kubectl("describe", "node", "rack1-node1"),
		"example.com/rack=r1", "example.com/new:NoSchedule", "HolderIdentity:  rack1-node1", "RenewTime", "InternalIP", "Registered")
	// the first lease may be older than the node; a later one names its owner
	eventually(t, "the node owns its lease", func() bool {
		return c.kubectl("get", "lease", "rack1-node1", "-n", "kube-node-lease", "-o", "jsonpath={.metadata.ownerReferences[*].name}") == "rack1-node1"
	})

	t.Run("a cordon by a person on the host, and one by a person elsewhere", func(t *testing.T) {
		a.prints("cordon")
		mentions(t, "kubectl get node", c.kubectl("get", "node", "rack1-node1"), "Ready,SchedulingDisabled")
		c.kubectl("uncordon", "rack1-node1")
		eventually(t, "hostler knows of the uncordon", func() bool { return !a.status().Node.Spec.Unschedulable })
		c.kubectl("cordon", "rack1-node1")
		eventually(t, "hostler shows the cordon", func() bool { return strings.Contains(a.screen(), "SchedulingDisabled") })
		c.kubectl("uncordon", "rack1-node1")
	})
	t.Run("what somebody else changes", func(t *testing.T) {
		c.kubectl("label", "node", "rack1-node1", "example.com/rack=r2", "--overwrite")
		eventually(t, "the label is set again", func() bool { return c.node("rack1-node1").Labels["example.com/rack"] == "r1" })
		c.kubectl("taint", "node", "rack1-node1", "example.com/new-")
		eventually(t, "hostler tells what mends the taint", func() bool {
			return slices.ContainsFunc(a.status().Drift, func(d api.Drift) bool {
				return strings.Contains(d.Mend, "kubectl taint nodes rack1-node1 example.com/new:NoSchedule") || strings.Contains(d.Mend, "kubectl taint nodes rack1-node1 example.com/new=:NoSchedule")
			})
		})
	})
	t.Run("a node that is deleted is registered again", func(t *testing.T) {
		before := c.node("rack1-node1").UID
		c.kubectl("delete", "node", "rack1-node1")
		eventually(t, "there is a new node", func() bool { n := c.node("rack1-node1"); return n != nil && n.UID != before })
		eventually(t, "it is Ready", ready(corev1.ConditionTrue))
	})
	t.Run("an agent that dies, and comes back", func(t *testing.T) {
		a.kill()
		eventually(t, "the cluster takes the node for lost", ready(corev1.ConditionUnknown))
		eventually(t, "the cluster taints it", func() bool {
			return slices.ContainsFunc(c.node("rack1-node1").Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeUnreachable })
		})
		a.start()
		eventually(t, "the cluster sees the node Ready again", ready(corev1.ConditionTrue))
	})
	t.Run("a node may not delete itself", func(t *testing.T) {
		if r := a.hostler("leave"); r.code != 1 || !strings.Contains(r.err, "kubectl delete node rack1-node1") {
			t.Errorf("hostler leave = code %d, %s%s, want it refused, and the command for somebody who may", r.code, r.out, r.err)
		}
	})
	a.stop()
}

// TestANodeThatSomebodyElseCreates waits for its Node.
func TestANodeThatSomebodyElseCreates(t *testing.T) {
	t.Parallel()
	c := newCluster(t, kube.Options{})
	a := startAgent(t, c.asNode("given", ", register: false")+"status: {updateInterval: 1s}\n")
	eventually(t, "hostler says that it waits", func() bool { return strings.Contains(a.screen(), "no Node given there yet") })
	if out, err := c.Kubectl(t.Context(), "get", "lease", "given", "-n", "kube-node-lease"); err == nil {
		t.Errorf("there is a lease before there is a node:\n%s", out)
	}
	check(t, c.Apply(t.Context(), "{apiVersion: v1, kind: Node, metadata: {name: given}}"))
	eventually(t, "the node is Ready", func() bool {
		return condition(api.Status{Node: c.node("given")}, corev1.NodeReady).Status == corev1.ConditionTrue
	})
	eventually(t, "there is a lease", func() bool {
		_, err := c.Kubectl(t.Context(), "get", "lease", "given", "-n", "kube-node-lease")
		return err == nil
	})
	a.stop()
}

// TestANodeThatJoinsByBootstrap has nothing but a token at first.
func TestANodeThatJoinsByBootstrap(t *testing.T) {
	t.Parallel()
	c := newCluster(t, kube.Options{ControllerManager: true})
	bootstrap, err := c.BootstrapKubeconfig(t.Context())
	check(t, err)
	a := startAgent(t, fmt.Sprintf("controlPlane: {type: kubernetes, kubernetes: {bootstrapKubeconfig: %s, certificateDirectory: %s}}\nnode: {name: joins}\n", bootstrap, t.TempDir()))
	eventually(t, "the node is Ready", func() bool {
		n := c.node("joins")
		return n != nil && condition(api.Status{Node: n}, corev1.NodeReady).Status == corev1.ConditionTrue
	})
	a.stop()
}
