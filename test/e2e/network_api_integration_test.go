//go:build integration

package e2e_test

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/test/lab"
)

// remote is another host that uses an agent's API over the network.
type remote struct {
	t     testing.TB
	by    *lab.Authority
	roots *x509.CertPool
	at    string
}

// overNetwork configures an agent, before its start, to serve at an address, with a reader and an
// actor.
func (a *agent) overNetwork(address string) *remote {
	a.t.Helper()
	by, own, err := lab.NewAuthority("fleet")
	check(a.t, err)
	r := &remote{a.t, by, x509.NewCertPool(), "https://" + address}
	r.roots.AppendCertsFromPEM(own.Certificate)
	host := r.sign("host", x509.ExtKeyUsageServerAuth)
	dropIns := filepath.Join(a.folder, "conf.d")
	check(a.t, os.Mkdir(dropIns, 0o755))
	for name, text := range map[string][]byte{
		"host.crt": host.Certificate, "host.key": host.Key, "ca.crt": own.Certificate,
		"conf.d/10-network.yaml": fmt.Appendf(nil, "api: {listen: %q, tls: {certificate: %[2]s/host.crt, key: %[2]s/host.key, clientCA: %[2]s/ca.crt, allowedNames: {read: prometheus, act: ops}}}\n", address, a.folder),
	} {
		check(a.t, os.WriteFile(filepath.Join(a.folder, name), text, 0o600))
	}
	return r
}

func (r *remote) sign(name string, use x509.ExtKeyUsage) lab.Pair {
	r.t.Helper()
	pair, err := r.by.Sign(lab.Leaf(name, use, 24*time.Hour))
	check(r.t, err)
	return pair
}

// asks makes a request as a user, and returns the whole answer.
func (r *remote) asks(who, method, path, body string) (code int, text string) {
	r.t.Helper()
	pair := r.sign(who, x509.ExtKeyUsageClientAuth)
	own, err := tls.X509KeyPair(pair.Certificate, pair.Key)
	check(r.t, err)
	client := &http.Client{Timeout: patience, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: r.roots, Certificates: []tls.Certificate{own}}}}
	request, err := http.NewRequestWithContext(r.t.Context(), method, r.at+path, strings.NewReader(body))
	check(r.t, err)
	resp, err := client.Do(request)
	check(r.t, err)
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	check(r.t, err)
	return resp.StatusCode, string(answer)
}

func TestAHostIsDrainedOverTheNetwork(t *testing.T) {
	logind(t)
	pod(t, "polite", nil, 0, lab.ServeFor(0))
	a := newAgent(t, phases)
	r := a.overNetwork("127.0.0.1:9755")
	a.start()
	a.awaitGuard(shutdown.Armed)
	a.await("the API is served over the network", func(s api.Status) bool { return loopOf(t, s, "api").LastSuccess != nil })

	if code, text := r.asks("prometheus", "GET", "/v1/pods", ""); code != http.StatusOK || !strings.Contains(text, `"polite"`) {
		t.Errorf("GET /v1/pods by a reader = %d %s, want the pod", code, text)
	}
	for _, c := range []struct{ who, path string }{{"prometheus", "/v1/drain"}, {"stranger", "/v1/drain"}, {"ops", "/v1/gc/run"}} {
		if code, text := r.asks(c.who, "POST", c.path, "{}"); code != http.StatusForbidden {
			t.Errorf("POST %s by %s = %d %s, want 403", c.path, c.who, code, text)
		}
	}
	if cordoned(t, a.status()) {
		t.Fatal("who may not has cordoned the node")
	}
	code, text := r.asks("ops", "POST", "/v1/drain", "{}")
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if last := lines[len(lines)-1]; code != http.StatusOK || len(lines) < 2 || !strings.Contains(lines[0], `"step"`) || !strings.Contains(last, `"report"`) || strings.Contains(last, `"error":{`) {
		t.Fatalf("POST /v1/drain by an actor = %d %s, want a step and the report", code, text)
	}
	s := a.status()
	if !cordoned(t, s) || s.Cordon == nil || s.Cordon.By != "certificate ops" {
		t.Errorf("status = cordon %+v, want that of the certificate", s.Cordon)
	}
	if code, text := r.asks("ops", "POST", "/v1/uncordon", ""); code != http.StatusOK || cordoned(t, a.status()) {
		t.Errorf("POST /v1/uncordon by an actor = %d %s, want the node open", code, text)
	}
	a.stop()
}

func TestALogIsReadOverTheNetwork(t *testing.T) {
	t.Parallel()
	c := lab.ContainerdFor(t, lab.ContainerdOptions{HostLogs: true})
	_, err := c.Pull(t.Context(), lab.ImageSpec{Names: []string{webImage}})
	check(t, err)
	p, err := c.RunPod(t.Context(), lab.PodSpec{
		Name: "talks", Containers: []lab.ContainerSpec{{Name: "main", Image: webImage, Command: lab.ServeFor(0), Ready: "ready"}},
	})
	check(t, err)
	a := newAgent(t, quick+"runtimes: [{type: cri, endpoint: "+c.Endpoint+"}]\n")
	r := a.overNetwork("127.0.0.1:9759")
	a.start()
	a.await("the API is served over the network", func(s api.Status) bool { return loopOf(t, s, "api").LastSuccess != nil })
	pods := answers[api.PodList](a, "ps")
	if len(pods.Pods) != 1 || pods.Pods[0].Name != p.Name {
		t.Fatalf("hostler ps = %+v, want the pod", pods)
	}
	log := "/v1/pods/" + pods.Pods[0].Namespace + "/talks/containers/main/log"
	if code, text := r.asks("ops", "GET", log+"?tail=1", ""); code != http.StatusOK || text != "ready\n" {
		t.Errorf("GET %s by an actor = %d %q, want what the container has written", log, code, text)
	}
	if code, text := r.asks("prometheus", "GET", log, ""); code != http.StatusForbidden {
		t.Errorf("GET %s by a reader = %d %q, want 403", log, code, text)
	}
	code, text := r.asks("ops", "GET", strings.Replace(log, "talks", "silent", 1), "")
	if code != http.StatusNotFound {
		t.Errorf("GET the log of no pod = %d %q, want 404", code, text)
	}
	mentions(t, "the error", text, "no container main in pod", "silent", "hostler ps")
	a.stop()
}
