//go:build integration

package docker_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/test/etcd"
	"hostler.io/hostler/test/lab"
)

// Containers that a drain for a taint has stopped are started again if the taint is removed during
// the drain.
func TestContainersOfAWithdrawnTaintsDrainAreStartedAgain(t *testing.T) {
	h := &workload{T: t, docker: lab.DockerFor(t, lab.DockerOptions{}), ids: map[string]string{}}
	usualPlace(t, h.docker)
	_, err := h.docker.Load(t.Context(), lab.ImageSpec{Names: []string{image}})
	check(t, err)
	for name, policy := range map[string]string{"unless": "unless-stopped", "always": "always", "job": "no"} {
		h.run(lab.DockerContainer{Name: name, Restart: policy})
	}
	h.run(lab.DockerContainer{Name: "stubborn", Restart: "always", Command: lab.IgnoreTerm(), Ready: "ready", StopTimeout: 10 * time.Minute})
	fleet := etcd.For(t, etcd.Options{})
	a := startAgent(t, fmt.Sprintf("controlPlane: {type: etcd, etcd: {endpoints: [%s]}}\nnode: {name: n1, onTaint: drain, toleration: 1s}\nstatus: {updateInterval: 1s}\nshutdown: {gracePeriod: 20m}\n", strings.Join(fleet.Endpoints(), ", ")))
	a.await("the Node is registered", func(s api.Status) bool { return s.Node != nil && s.Node.UID != "" })
	taint := func(taints ...corev1.Taint) {
		t.Helper()
		text, err := fleet.Ctl(t.Context(), "get", "--print-value-only", "/hostler/nodes/n1")
		check(t, err)
		var node corev1.Node
		check(t, json.Unmarshal([]byte(text), &node))
		node.Spec.Taints = taints
		changed, err := json.Marshal(node)
		check(t, err)
		check(t, fleet.Put(t.Context(), "/hostler/nodes/n1", string(changed)))
	}
	taint(corev1.Taint{Key: "example.com/maintenance", Effect: corev1.TaintEffectNoExecute})
	a.await("all are stopped that end", func(s api.Status) bool {
		for _, name := range []string{"unless", "always", "job"} {
			if _, running := h.started(name); running {
				return false
			}
		}
		return s.Shutdown.ManualDrain != nil
	})
	taint()
	a.await("all is started again", func(s api.Status) bool {
		outcomes := map[string]journal.RestartOutcome{}
		for _, r := range s.Shutdown.Restarts {
			outcomes[r.ID] = r.Outcome
		}
		return outcomes[h.ids["unless"]] == journal.Restarted && outcomes[h.ids["always"]] == journal.Restarted && outcomes[h.ids["job"]] != ""
	})
	for name := range h.ids {
		if _, running := h.started(name); running != (name != "job") {
			t.Errorf("%s runs: %t, want %t", name, running, name != "job")
		}
	}
}
