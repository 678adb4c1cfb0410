//go:build integration

package e2e_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane/kubernetes"
	"hostler.io/hostler/test/kube"
)

// TestAServerWithTheManifests applies the manifests, and runs the server as their pods would: with
// their configuration, and with only their service account. No test bed has pods in a cluster;
// test/image runs the image.
func TestAServerWithTheManifests(t *testing.T) {
	t.Parallel()
	c := newCluster(t, kube.Options{})
	for _, name := range []string{"server-rbac.yaml", "server.yaml"} {
		manifest, err := os.ReadFile("../../packaging/kubernetes/" + name)
		check(t, err)
		check(t, c.Apply(within(t), string(manifest)))
	}
	c.fitsItsNamespace("deployment/hostler-server")
	startAgent(t, c.asNode("n1", "")+"lease: {duration: 10s, renewInterval: 2s}\nstatus: {updateInterval: 1s}\n")
	a := startAgent(t, c.asNode("n2", "")+"lease: {duration: 10s, renewInterval: 2s}\nstatus: {updateInterval: 1s}\n")
	for _, name := range []string{"n1", "n2"} {
		eventually(t, name+" is Ready", c.ready(name))
	}

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
	check(t, os.WriteFile(filepath.Join(s.folder, "server.d", "test.yaml"), fmt.Appendf(nil, "api: {socket: %s}\nnodeLifecycle: {gracePeriod: 10s}\n", s.socket()), 0o644))
	s.start()
	eventually(t, "the server leads", s.leads)
	for path, want := range map[string]string{"healthz": "ok\n", "metrics": `hostler_server_leading{controller="eviction"} 1`} {
		if got := get(t, "http://"+ownAddress(t)+":9756/"+path); !strings.Contains(got, want) {
			t.Errorf("GET /%s beyond loopback = %q, want %q", path, got, want)
		}
	}

	a.kill()
	c.becomes("n2", corev1.ConditionUnknown, unreachable)
	a.start()
	c.becomes("n2", corev1.ConditionTrue, "")
	eventually(t, "Events say what the server did", func() bool {
		text := c.kubectl("get", "events", "-n", "default", "-o", `jsonpath={range .items[*]}{.involvedObject.name} {.reason} {.message}{"\n"}{end}`)
		return strings.Contains(text, "n2 NodeNotReady set Ready,") && strings.Contains(text, "n2 NodeUntainted remove taint")
	})
	s.end(15)
	requests, err := c.Requests()
	check(t, err)
	own := 0
	for _, r := range requests {
		switch {
		case r.User != "system:serviceaccount:hostler-system:hostler-server":
		case r.Code == 403:
			t.Errorf("the server was refused: %v", r)
		default:
			own++
		}
	}
	if own == 0 {
		t.Error("no request of the service account")
	}
}

// fitsItsNamespace creates the pod of a workload in a dry run, and checks that the ports of probes
// exist.
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
