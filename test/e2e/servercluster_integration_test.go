//go:build integration

package e2e_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	fleetanswer "hostler.io/hostler/controlplane/server/answer"
	"hostler.io/hostler/test/kube"
)

// serverUser is the user of servers in a cluster.
const serverUser = "hostler-server"

// manifests is the folder of the packaged manifests.
const manifests = "../../packaging/kubernetes/"

// served returns the settings of a server of this cluster, with the packaged rights of all controllers.
func (c cluster) served(more string) string {
	c.t.Helper()
	check(c.t, c.ApplyFiles(within(c.t), manifests+"server-rbac*.yaml"))
	file, err := c.Kubeconfig(kube.User{Name: serverUser})
	check(c.t, err)
	return fmt.Sprintf("store: {type: kubernetes, kubernetes: {kubeconfig: %s}}\n%s", file, more)
}

// becomes waits until Ready and the taints of a Node are those.
func (c cluster) becomes(name string, ready corev1.ConditionStatus, taints string) {
	c.t.Helper()
	last := ""
	defer func() {
		if c.t.Failed() {
			c.t.Logf("%s was last %s", name, last)
		}
	}()
	eventually(c.t, fmt.Sprintf("%s is %s with %q", name, ready, taints), func() bool {
		node, list := c.node(name), []string(nil)
		for _, t := range node.Spec.Taints {
			if key, ok := strings.CutPrefix(t.Key, "node.kubernetes.io/"); ok {
				list = append(list, key+":"+string(t.Effect))
			}
		}
		slices.Sort(list)
		for _, condition := range node.Status.Conditions {
			if condition.Type == corev1.NodeReady {
				last = strings.TrimSpace(string(condition.Status) + " " + strings.Join(list, " "))
			}
		}
		return last == strings.TrimSpace(string(ready)+" "+taints)
	})
}

// TestAServerActsOnACluster runs no kube-controller-manager.
func TestAServerActsOnACluster(t *testing.T) {
	t.Parallel()
	c := newCluster(t, kube.Options{})
	const pace = "lease: {duration: 10s, renewInterval: 2s}\nstatus: {updateInterval: 1s}\n"
	startAgent(t, c.asNode("n1", "")+pace)
	a := startAgent(t, c.asNode("n2", "")+pace)
	for _, name := range []string{"n1", "n2"} {
		eventually(t, name+" is Ready", c.ready(name))
	}
	s := startServer(t, c.served("nodeLifecycle: {gracePeriod: 10s}"))
	eventually(t, "the server leads", s.leads)
	// The API server taints new Nodes as not ready.
	c.becomes("n1", corev1.ConditionTrue, "")
	c.becomes("n2", corev1.ConditionTrue, "")

	a.kill()
	killed := time.Now()
	c.becomes("n2", corev1.ConditionUnknown, unreachable)
	t.Logf("Unknown and tainted %v after the agent was killed, with a grace period of 10 s and a renewal every 2 s", time.Since(killed).Round(100*time.Millisecond))
	a.start()
	c.becomes("n2", corev1.ConditionTrue, "")
	c.kubectl("cordon", "n1")
	c.becomes("n1", corev1.ConditionTrue, "unschedulable:NoSchedule")
	c.kubectl("uncordon", "n1")
	c.becomes("n1", corev1.ConditionTrue, "")
	s.end(15)
	if holder := c.kubectl("get", "lease", "-n", "hostler-system", "hostler-node-lifecycle", "-o", "jsonpath={.spec.holderIdentity}"); holder != "" && !strings.Contains(s.logged(), "cannot give the leadership back") {
		t.Errorf("the leader after the server has stopped = %q, want nobody", holder)
	}
	c.unrefused(serverUser)
}

// TestAServerYieldsToKubeControllerManager runs both in a cluster.
func TestAServerYieldsToKubeControllerManager(t *testing.T) {
	t.Parallel()
	c := newCluster(t, kube.Options{ControllerManager: true, ControllerManagerFlags: []string{"--leader-elect=true"}})
	s := startServer(t, c.served(""))
	yields := func(because string) func() bool {
		return func() bool {
			controller := s.status().Controllers[0]
			return controller.State == fleetanswer.Yielding && strings.Contains(controller.Message, because)
		}
	}
	eventually(t, "the server yields", yields("is being renewed"))
	check(t, c.ControllerManager.Kill())
	eventually(t, "the server still yields", yields("is no longer renewed"))
	eventuallyMentions(t, "hostler fleet status", func() string { return onOneLine(s.prints("status")) }, "node-lifecycle Yielding", "clones Leading", "heartbeats NotApplicable", "does not apply to kubernetes", "kube-system/kube-controller-manager", "name the controller in `controllers`")
	s.end(15)
	s.configure(c.served("controllers: [node-lifecycle]"))
	s.start()
	eventually(t, "the server leads", s.leads)
}
