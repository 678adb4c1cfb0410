package agent

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/agent/config"
	"hostler.io/hostler/agent/doctor"
	"hostler.io/hostler/test/lab"
)

// authority is a CA with the certificates that it has signed.
type authority struct {
	t     *testing.T
	by    *lab.Authority
	roots *x509.CertPool
}

// overTLS gives the rig's agent certificates, and allows a reader and an actor.
func (r *rig) overTLS(t *testing.T) *authority {
	t.Helper()
	by, own, err := lab.NewAuthority("fleet")
	if err != nil {
		t.Fatal(err)
	}
	a := &authority{t, by, x509.NewCertPool()}
	a.roots.AppendCertsFromPEM(own.Certificate)
	dir := folder(t)
	pair := a.sign("host", x509.ExtKeyUsageServerAuth)
	tls := &r.cfg.API.TLS
	tls.Certificate, tls.Key, tls.ClientCA = filepath.Join(dir, "crt"), filepath.Join(dir, "key"), filepath.Join(dir, "ca")
	for path, text := range map[string][]byte{tls.Certificate: pair.Certificate, tls.Key: pair.Key, tls.ClientCA: own.Certificate} {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tls.AllowedNames = config.AllowedNames{Read: []string{"prometheus"}, Act: []string{"ops"}}
	r.next = r.cfg
	return a
}

func (a *authority) sign(name string, use x509.ExtKeyUsage) lab.Pair {
	a.t.Helper()
	pair, err := a.by.Sign(lab.Leaf(name, use, 24*time.Hour))
	if err != nil {
		a.t.Fatal(err)
	}
	return pair
}

// as returns a client with a certificate of this name.
func (a *authority) as(name string) *http.Client {
	a.t.Helper()
	pair := a.sign(name, x509.ExtKeyUsageClientAuth)
	own, err := tls.X509KeyPair(pair.Certificate, pair.Key)
	if err != nil {
		a.t.Fatal(err)
	}
	return &http.Client{Timeout: bound, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: a.roots, Certificates: []tls.Certificate{own}}}}
}

// answer returns the answer to a request.
func answer(t *testing.T, c *http.Client, method, url string) (code int, text string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// free returns an address where nothing listens.
func free(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// runs starts an agent that ends with the test.
func (r *rig) runs(t *testing.T) {
	t.Helper()
	signals, ended := r.run(t)
	t.Cleanup(func() {
		signals <- syscall.SIGTERM
		within(t, "after SIGTERM", ended)
	})
}

// healthy waits until the loop is healthy, or not, and returns its health.
func (r *rig) healthy(t *testing.T, name string, want bool) (h api.Loop) {
	t.Helper()
	r.eventually(t, "the health of loop "+name, func(s api.Status) bool {
		for _, h = range s.Loops {
			if h.Name == name {
				return h.Healthy == want && (h.LastSuccess != nil || !want)
			}
		}
		return false
	})
	return h
}

// networkCheck checks what doctor reports about the network listeners.
func (r *rig) networkCheck(t *testing.T, want doctor.Status, part string) {
	t.Helper()
	report, err := api.NewClient(r.cfg.API.Socket).Doctor(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(report.Checks, func(c doctor.Check) bool { return c.Name == "network" })
	if i < 0 || report.Checks[i].Status != want || !strings.Contains(report.Checks[i].Message, part) {
		t.Errorf("Doctor() = %+v, want check network %s, with %q", report.Checks, want, part)
	}
}

func TestTheAPIIsServedOverTheNetwork(t *testing.T) {
	r := newRig(t)
	fleet := r.overTLS(t)
	r.cfg.API.Listen = free(t)
	r.next = r.cfg
	r.runs(t)
	r.healthy(t, "api", true)
	at := "https://" + r.cfg.API.Listen
	reader, actor := fleet.as("prometheus"), fleet.as("ops")
	r.networkCheck(t, doctor.OK, "is valid until")
	code, text := answer(t, reader, "GET", at+"/v1/status")
	var s api.Status
	if err := json.Unmarshal([]byte(text), &s); code != http.StatusOK || err != nil || s.Version != "1.2.3" {
		t.Fatalf("GET /v1/status by a reader = %d %s, %v, want the status", code, text, err)
	}
	if n := s.Network; n == nil || n.Listen != r.cfg.API.Listen || n.Certificate != r.cfg.API.TLS.Certificate || n.Ends == nil || time.Until(*n.Ends) < time.Hour || n.Message != "" {
		t.Errorf("status = network %+v, want when the certificate ends", n)
	}
	if code, text := answer(t, reader, "GET", at+"/metrics"); code != http.StatusOK || !strings.Contains(text, `hostler_loop_healthy{loop="api"} 1`) {
		t.Errorf("GET /metrics by a reader = %d %.200s", code, text)
	}
	if code, text := answer(t, reader, "POST", at+"/v1/cordon"); code != http.StatusForbidden {
		t.Errorf("POST /v1/cordon by a reader = %d %s, want 403", code, text)
	}
	if code, text := answer(t, actor, "POST", at+"/v1/cordon"); code != http.StatusOK || !strings.Contains(text, `"by":"certificate ops"`) {
		t.Errorf("POST /v1/cordon by an actor = %d %s, want the node closed", code, text)
	}

	// A name that a reload removes is rejected from the next request on.
	client := api.NewClient(r.cfg.API.Socket)
	r.next.API.TLS.AllowedNames = config.AllowedNames{Read: []string{"grafana"}}
	if report, err := client.Reload(t.Context()); err != nil || len(report.Changed) != 2 {
		t.Fatalf("Reload() = %+v, %v, want both lists changed", report, err)
	}
	for who, c := range map[string]*http.Client{"the reader": reader, "the actor": actor} {
		if code, text := answer(t, c, "GET", at+"/v1/status"); code != http.StatusForbidden || !strings.Contains(text, "allowedNames") {
			t.Errorf("GET /v1/status by %s that was = %d %s, want 403", who, code, text)
		}
	}
	grafana := fleet.as("grafana")
	if code, text := answer(t, grafana, "GET", at+"/v1/status"); code != http.StatusOK {
		t.Errorf("GET /v1/status by the new reader = %d %s, want 200", code, text)
	}

	// An invalid file is reported, and the old one stays in use.
	if err := os.WriteFile(r.cfg.API.TLS.Key, []byte("what"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, text := answer(t, grafana, "GET", at+"/v1/status"); code != http.StatusOK || !strings.Contains(text, "api.tls: certificate") {
		t.Errorf("GET /v1/status with a broken key = %d %s, want the fault reported", code, text)
	}
	r.networkCheck(t, doctor.Fail, "api.tls: certificate")
}

func TestWithoutAnAddressNothingIsServedOverTheNetwork(t *testing.T) {
	r := newRig(t)
	r.runs(t)
	s, err := api.NewClient(r.cfg.API.Socket).Status(t.Context())
	if err != nil || s.Network != nil {
		t.Errorf("Status() = network %+v, %v, want none", s.Network, err)
	}
}

func TestAPortThatIsTakenIsReportedAndTriedAgain(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	r := newRig(t)
	r.overTLS(t)
	r.cfg.API.Listen = taken.Addr().String()
	r.runs(t)
	if h := r.healthy(t, "api", false); !strings.Contains(h.LastError, "serve api.listen: ") || !strings.Contains(h.LastError, "address already in use") {
		t.Errorf("loop api = %+v, want why", h)
	}
	r.networkCheck(t, doctor.Fail, "address already in use")
	taken.Close()
	r.healthy(t, "api", true)
	r.networkCheck(t, doctor.OK, "is valid until")
}

func TestMetricsBeyondLoopbackTakeACertificate(t *testing.T) {
	r := newRig(t)
	fleet := r.overTLS(t)
	_, port, err := net.SplitHostPort(free(t))
	if err != nil {
		t.Fatal(err)
	}
	r.cfg.Metrics.Listen = "0.0.0.0:" + port
	r.runs(t)
	r.healthy(t, "metrics", true)
	at := "127.0.0.1:" + port + "/metrics"
	if code, text := answer(t, fleet.as("prometheus"), "GET", "https://"+at); code != http.StatusOK || !strings.Contains(text, "hostler_build_info") {
		t.Errorf("GET /metrics by a reader = %d %.200s", code, text)
	}
	if code, text := answer(t, fleet.as("stranger"), "GET", "https://"+at); code != http.StatusForbidden {
		t.Errorf("GET /metrics by a stranger = %d %.200s, want 403", code, text)
	}
	if code, text := answer(t, fleet.as("prometheus"), "GET", "https://127.0.0.1:"+port+"/v1/status"); code != http.StatusNotFound {
		t.Errorf("GET /v1/status where metrics are = %d %.200s, want 404", code, text)
	}
	if code, text := answer(t, http.DefaultClient, "GET", "http://"+at); code == http.StatusOK || strings.Contains(text, "hostler_build_info") {
		t.Errorf("GET /metrics by plain HTTP = %d %.200s, want nothing", code, text)
	}
	s, err := api.NewClient(r.cfg.API.Socket).Status(t.Context())
	if err != nil || s.Network == nil || s.Network.Metrics != r.cfg.Metrics.Listen || s.Network.Listen != "" {
		t.Errorf("Status() = network %+v, %v, want where metrics are", s.Network, err)
	}
}
