//go:build integration

package machine_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane/server/answer"
	"hostler.io/hostler/test/kube"
	"hostler.io/hostler/test/machine"
)

// deadNode is a Node that no host reports, and a pod on it that tolerates this for half an hour.
const deadNode = `apiVersion: v1
kind: ServiceAccount
metadata: {name: default, namespace: default}
---
apiVersion: v1
kind: Node
metadata: {name: dead}
---
apiVersion: v1
kind: Pod
metadata: {name: patient, namespace: default}
spec:
  nodeName: dead
  containers: [{name: c, image: example.com/c:1}]
  tolerations: [{operator: Exists, effect: NoExecute, tolerationSeconds: 1800}]
`

// TestTheClockOfAServerIsStepped sets the clock of a machine, which runs a server and the agent of
// a live host, forward and back by an hour. The cluster's own clock is correct. The live host is
// Ready and without taints throughout, and no pod is evicted early.
func TestTheClockOfAServerIsStepped(t *testing.T) {
	inVMs(t, func(t *testing.T, o machine.Options) {
		cluster := kube.For(t, kube.Options{Apart: true})
		if err := errors.Join(cluster.ApplyFiles(t.Context(), "../../packaging/kubernetes/server-rbac*.yaml"), cluster.Apply(t.Context(), deadNode)); err != nil {
			t.Fatal(err)
		}
		o.Uplink, o.Config, o.Files = true, clockConfig, credentials(t, cluster)
		s := &stepped{T: t, cluster: cluster, m: machine.Boot(t, o)}
		file, err := cluster.Kubeconfig(kube.User{Name: "hostler-server"})
		if err != nil {
			t.Fatal(err)
		}
		kubeconfig, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		s.m.Copy("../../packaging/hostler-server.service", "/usr/lib/systemd/system/hostler-server.service")
		s.m.Write("/etc/hostler/server-kubeconfig", strings.ReplaceAll(string(kubeconfig), cluster.CAFile, "/etc/hostler/ca.crt"))
		s.m.Write("/etc/hostler/server.yaml", fmt.Sprintf("store: {type: kubernetes, kubernetes: {kubeconfig: /etc/hostler/server-kubeconfig}}\nnodeLifecycle: {gracePeriod: %v, startupGracePeriod: 10s}\n", clockGrace))
		s.m.Run("chmod 644 /etc/hostler/server-kubeconfig; systemctl daemon-reload; systemctl start hostler-server")
		s.m.Eventually("the server has tainted the dead Node", func() bool {
			out, err := kubectl(t, cluster, "get", "node", "dead", "-o", "jsonpath={.spec.taints[*].effect}")
			return err == nil && strings.Contains(out, "NoExecute")
		})
		s.m.Eventually("the cluster sees the node Ready", func() bool {
			out, err := kubectl(t, cluster, "get", "node", "machine", "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status} {.spec.taints}`)
			return err == nil && strings.TrimSpace(out) == string(corev1.ConditionTrue)
		})
		states := recording(t, cluster, "get", "node", "machine", "--watch", "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status}{.spec.taints[*].effect}{"\n"}`)
		s.step("+1 hour")
		s.leads()
		s.step("-1 hour")
		s.leads()
		s.step("-1 hour")
		s.m.Run("systemctl restart hostler-server")
		s.leads()
		s.lives("after a restart of the server an hour behind")
		s.step("+1 hour")
		s.leads()
		// Only the cordon of each step taints the Node, as unschedulable.
		for _, state := range slices.Compact(states()) {
			if state != "True" && state != "TrueNoSchedule" {
				t.Errorf("the cluster saw the living host as %s, want it Ready and without NoExecute taints throughout", state)
			}
		}
		if out, err := kubectl(t, cluster, "get", "pod", "patient", "-o", "jsonpath={.metadata.deletionTimestamp}"); err != nil || out != "" {
			t.Errorf("the pod of the dead host: deletion requested at %q, %v, want it to stay for half an hour", out, err)
		}
	})
}

// leads waits until the server leads and nothing is due.
func (s *stepped) leads() {
	s.Helper()
	s.m.Eventually("the server leads", func() bool {
		var a answer.Status
		if err := json.Unmarshal([]byte(s.m.Run("hostler fleet status -o json")), &a); err != nil {
			s.Fatal(err)
		}
		return !slices.ContainsFunc(a.Controllers, func(c answer.Controller) bool {
			return c.State == answer.Standby || c.State == answer.Starting || c.Waits != "" || c.Due > 0
		})
	})
}
