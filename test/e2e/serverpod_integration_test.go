//go:build integration

package e2e_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/yaml"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/kubernetes"
	fleetanswer "hostler.io/hostler/controlplane/server/answer"
	"hostler.io/hostler/test/kube"
	"hostler.io/hostler/test/lab"
)

// podUser is the user of the pods of server.yaml.
const podUser = "system:serviceaccount:hostler-system:hostler-server"

// TestAServerWithTheManifests applies the default manifests beside kube-controller-manager, and runs
// the server as their pods would: with their configuration, and with only their service account. It
// uses each right that it has. No test bed has pods in a cluster; test/image runs the image.
func TestAServerWithTheManifests(t *testing.T) {
	lab.TakesMinutes(t)
	t.Parallel()
	c := newCluster(t, kube.Options{ControllerManager: true, ControllerManagerFlags: []string{"--leader-elect=true", "--controllers=*,-node-lifecycle-controller"}})
	check(t, c.ApplyFiles(within(t), manifests+"server-rbac.yaml"))
	check(t, c.ApplyFiles(within(t), manifests+"server.yaml"))
	c.fitsItsNamespace("deployment/hostler-server")
	storeNodes(c, nil, "n1", "n2") // of hosts that give no sign of life, so that their Leases are read

	// The files that kubelet creates for the pod.
	authority, err := os.ReadFile(c.CAFile)
	check(t, err)
	check(t, errors.Join(
		os.MkdirAll(kubernetes.AccountFolder, 0o777),
		os.WriteFile(kubernetes.AccountFolder+"/token", []byte(c.kubectl("create", "token", "-n", "hostler-system", "hostler-server")), 0o644),
		os.WriteFile(kubernetes.AccountFolder+"/ca.crt", authority, 0o644),
	))
	t.Cleanup(func() { check(t, os.RemoveAll(kubernetes.AccountFolder)) })
	at, err := url.Parse(c.Server)
	check(t, err)
	s := newServer(t)
	s.env = []string{"KUBERNETES_SERVICE_HOST=" + at.Hostname(), "KUBERNETES_SERVICE_PORT=" + at.Port()}
	settings := c.kubectl("get", "configmap", "-n", "hostler-system", "hostler-server", "-o", `jsonpath={.data.server\.yaml}`)
	check(t, os.WriteFile(filepath.Join(s.folder, "server.yaml"), []byte(settings), 0o644))
	check(t, os.Mkdir(filepath.Join(s.folder, "server.d"), 0o755))
	check(t, os.WriteFile(filepath.Join(s.folder, "server.d", "test.yaml"), fmt.Appendf(nil, "api: {socket: %s}\n", s.socket()), 0o644))
	s.start()
	state := func(want string, names ...string) func() bool {
		return func() bool {
			return !slices.ContainsFunc(s.status().Controllers, func(c fleetanswer.Controller) bool {
				return slices.Contains(names, c.Name) && c.State != want
			})
		}
	}
	eventually(t, "the server leads its own controllers", state(fleetanswer.Leading, "clones", "reboots"))
	eventually(t, "it yields the others", state(fleetanswer.Yielding, "node-lifecycle", "eviction", "garbage-collector"))
	for path, want := range map[string]string{"healthz": "ok\n", "metrics": `hostler_server_leading{controller="clones"} 1`} {
		if got := get(t, "http://"+ownAddress(t)+":9756/"+path); !strings.Contains(got, want) {
			t.Errorf("GET /%s beyond loopback = %q, want %q", path, got, want)
		}
	}
	if problems := s.status().Problems; len(problems) > 0 {
		t.Errorf("problems = %+v, want none", problems)
	}

	for _, other := range []string{"secrets", "configmaps", "deployments.apps"} {
		if answer, _ := c.Kubectl(within(t), "auth", "can-i", "list", other, "-A", "--as="+podUser); strings.TrimSpace(answer) != "no" { // it exits with 1
			t.Errorf("kubectl auth can-i list %s = %q, want no", other, answer)
		}
	}

	// One host reboots twice: its Node is emptied, and Events are repeated.
	c.createPod(newPod("n1", "web", -1))
	for _, id := range []string{"r1", "r2"} {
		reboot(t, c, "n1", id, controlplane.RebootWaiting)
		slotBecomes(t, c, "n1", "it has the slot", func(s controlplane.RebootSlot) bool {
			c.reports("n1", "n2") // only hosts that are known to be alive get slots
			return granted(id)(s)
		})
		reboot(t, c, "n1", id, controlplane.RebootDraining)
		if id == "r1" {
			c.podBecomes("web", podMoved)
			c.ends("web")
		}
		slotBecomes(t, c, "n1", "it is empty", func(s controlplane.RebootSlot) bool { return s.Emptied })
		reboot(t, c, "n1", id, controlplane.RebootDone)
		slotBecomes(t, c, "n1", "nothing any more", none)
	}
	// A host with the machine ID of another one dies.
	c.annotate("n2", controlplane.AnnotationSameMachine, "gone")
	eventually(t, "the clone is not named any more", func() bool { return c.node("n2").Annotations[controlplane.AnnotationSameMachine] == "" })
	rights := c.grants("server-rbac.yaml")
	left := rights
	defer func() {
		if t.Failed() {
			t.Logf("rights that the server has not used: %v", left)
		}
	}()
	eventually(t, "the server has used each right", func() bool {
		left = c.unused(podUser, rights)
		return len(left) == 0
	})
	s.end(15)
	c.unrefused(podUser)
}

// reports reports a status of Nodes as their hosts do.
func (c cluster) reports(names ...string) {
	c.t.Helper()
	for _, name := range names {
		c.kubectl("patch", "node", name, "--subresource=status", "--type=strategic", "-p", fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready","status":"True","lastHeartbeatTime":%q}]}}`, time.Now().UTC().Format(time.RFC3339)))
	}
}

// grant is a right: a verb on a resource, in one namespace or, if that is empty, in the whole cluster.
type grant struct{ verb, resource, namespace string }

// grants returns all rights in a packaged manifest.
func (c cluster) grants(name string) map[grant]bool {
	c.t.Helper()
	text, err := os.ReadFile(manifests + name)
	check(c.t, err)
	all := map[grant]bool{}
	for _, document := range strings.Split(string(text), "\n---\n") {
		var object struct {
			Metadata struct{ Namespace string }
			Rules    []rule
		}
		check(c.t, yaml.Unmarshal([]byte(document), &object))
		for _, r := range object.Rules {
			for _, resource := range r.Resources {
				for _, verb := range r.Verbs {
					all[grant{verb, resource, object.Metadata.Namespace}] = true
				}
			}
		}
	}
	return all
}

// unused returns the rights that no request of a user needed so far. A right in one namespace counts
// before the same right in the whole cluster.
func (c cluster) unused(user string, granted map[grant]bool) map[grant]bool {
	c.t.Helper()
	left := maps.Clone(granted)
	requests, err := c.Requests()
	check(c.t, err)
	for _, r := range requests {
		g := grant{r.Verb, strings.TrimSuffix(r.Resource+"/"+r.Subresource, "/"), r.Namespace}
		if !granted[g] {
			g.namespace = ""
		}
		if r.User == user {
			delete(left, g)
		}
	}
	return left
}

// unrefused fails if a user has made no request, or if one was refused for lack of a right.
func (c cluster) unrefused(user string) {
	c.t.Helper()
	requests, err := c.Requests()
	check(c.t, err)
	requests = slices.DeleteFunc(requests, func(r kube.Request) bool { return r.User != user })
	if len(requests) == 0 {
		c.t.Errorf("%s made no request", user)
	}
	for _, r := range requests {
		if r.Code == http.StatusForbidden {
			c.t.Errorf("%s was refused: %v", user, r)
		}
	}
}

// fitsItsNamespace creates the pod of a workload in a dry run, and checks that the ports of probes and
// of its NetworkPolicy exist.
func (c cluster) fitsItsNamespace(workload string) {
	c.t.Helper()
	var template corev1.PodTemplateSpec
	check(c.t, json.Unmarshal([]byte(c.kubectl("get", "-n", "hostler-system", workload, "-o", "jsonpath={.spec.template}")), &template))
	pod := corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	pod.APIVersion, pod.Kind, pod.Name = "v1", "Pod", "dry-run"
	text, err := json.Marshal(pod)
	check(c.t, err)
	dry := c.KubectlCommand(within(c.t), "create", "-n", "hostler-system", "--dry-run=server", "-f", "-")
	dry.Stdin = strings.NewReader(string(text))
	if out, err := dry.CombinedOutput(); err != nil {
		c.t.Errorf("the pod does not fit its namespace: %v: %s", err, out)
	}
	container := template.Spec.Containers[0]
	for _, probe := range []*corev1.Probe{container.LivenessProbe, container.ReadinessProbe} {
		if probe.HTTPGet.Port.String() != container.Ports[0].Name || container.Ports[0].ContainerPort != 9756 {
			c.t.Errorf("a probe asks %v, of %v", probe.HTTPGet, container.Ports)
		}
	}
	var policy networkingv1.NetworkPolicy
	check(c.t, json.Unmarshal([]byte(c.kubectl("get", "-n", "hostler-system", "networkpolicy/hostler-server", "-o", "json")), &policy))
	if labels := policy.Spec.PodSelector.MatchLabels; !maps.Equal(labels, template.Labels) || len(policy.Spec.PolicyTypes) != 2 {
		c.t.Errorf("the NetworkPolicy is for pods with labels %v and for %v, want %v in both directions", labels, policy.Spec.PolicyTypes, template.Labels)
	}
	if in := policy.Spec.Ingress; len(in) != 1 || len(in[0].Ports) != 1 || in[0].Ports[0].Port.String() != container.Ports[0].Name {
		c.t.Errorf("ingress = %+v, want only the port of the metrics", in)
	}
	var out []string
	for _, e := range policy.Spec.Egress {
		for _, p := range e.Ports {
			out = append(out, fmt.Sprintf("%s %v, %d peers", *p.Protocol, p.Port, len(e.To)))
		}
	}
	if want := []string{"UDP 53, 1 peers", "TCP 53, 1 peers", "TCP 443, 0 peers", "TCP 6443, 0 peers"}; !slices.Equal(out, want) {
		c.t.Errorf("egress = %q, want DNS in kube-system and the API server: %q", out, want)
	}
}

// ownAddress returns an address of this host that is not loopback.
func ownAddress(t *testing.T) string {
	t.Helper()
	all, err := net.InterfaceAddrs()
	check(t, err)
	for _, a := range all {
		if ip, ok := a.(*net.IPNet); ok && !ip.IP.IsLoopback() && ip.IP.To4() != nil {
			return ip.IP.String()
		}
	}
	t.Fatal("this host has no address but loopback")
	return ""
}

func get(t *testing.T, where string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(within(t), http.MethodGet, where, nil)
	check(t, err)
	answer, err := http.DefaultClient.Do(request)
	check(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	check(t, err)
	return string(text)
}
