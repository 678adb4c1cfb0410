//go:build integration

package e2e_test

import (
	"bytes"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/test/kube"
	"hostler.io/hostler/test/lab"
)

// refused answers requests for several Leases of hosts with an HTTP status.
func refused(code int) func(*http.Request) int {
	return func(r *http.Request) int {
		if strings.HasSuffix(r.URL.Path, "/namespaces/kube-node-lease/leases") {
			return code
		}
		return 0
	}
}

// silent drops what a watch of Leases reports, also its bookmarks.
func silent(_ http.Header, body []byte) []byte {
	if bytes.HasPrefix(body, []byte(`{"type":`)) && bytes.Contains(body, []byte(`"kind":"Lease"`)) {
		return nil
	}
	return body
}

// TestLeasesThatAreNotReadKillNobody lets a server read everything but the Leases of hosts, for longer than their grace period. While
// only the watch is silent, each Lease is read before its host is judged.
func TestLeasesThatAreNotReadKillNobody(t *testing.T) {
	lab.TakesMinutes(t)
	t.Parallel()
	c := newCluster(t, kube.Options{})
	proxy, err := c.NewTamperer()
	check(t, err)
	t.Cleanup(func() { check(t, proxy.Close()) })
	settings := c.served("nodeLifecycle: {gracePeriod: 10s}")
	_, file, _ := strings.Cut(settings, "kubeconfig: ")
	file, _, _ = strings.Cut(file, "}")
	text, err := os.ReadFile(file)
	check(t, err)
	check(t, os.WriteFile(file, bytes.ReplaceAll(text, []byte(c.Server), []byte("https://"+proxy.Address)), 0o600))

	const pace = "lease: {duration: 10s, renewInterval: 2s}\nstatus: {updateInterval: 1s}\n"
	startAgent(t, c.asNode("lives", "")+pace)
	dies := startAgent(t, c.asNode("dies", "")+pace)
	s := startServer(t, settings)
	eventually(t, "the server leads", s.leads)
	for _, fault := range []struct {
		name       string
		begin, end func()
		words      string // of fleet status
	}{
		{"no right", func() { proxy.Refuse(refused(http.StatusForbidden)) }, func() { proxy.Refuse(nil) }, "listing leases"},
		{"too many requests", func() { proxy.Refuse(refused(http.StatusTooManyRequests)) }, func() { proxy.Refuse(nil) }, "listing leases"},
		{"a webhook that fails", func() { proxy.Refuse(refused(http.StatusInternalServerError)) }, func() { proxy.Refuse(nil) }, "listing leases"},
		{"a watch that is silent", func() { proxy.Use(silent) }, func() { proxy.Use(nil) }, "node-lifecycle Leading this server 0 0 0"},
	} {
		t.Run(fault.name, func(t *testing.T) {
			c := cluster{c.Cluster, t}
			for _, name := range []string{"lives", "dies"} {
				c.becomes(name, corev1.ConditionTrue, "")
			}
			before := len(s.logged())
			fault.begin()
			time.Sleep(30 * time.Second) // the promise is that nothing happens
			eventuallyMentions(t, "hostler fleet status", func() string { return onOneLine(s.prints("status")) }, fault.words)
			if log := s.logged()[before:]; strings.Contains(log, "Unknown") || strings.Contains(log, "add taint") {
				t.Errorf("the server has marked hosts that live:\n%s", log)
			}
			dies.kill()
			fault.end()
			c.becomes("dies", corev1.ConditionUnknown, unreachable)
			dies.start()
			c.becomes("dies", corev1.ConditionTrue, "")
			if log := s.logged()[before:]; strings.Contains(log, "lives") {
				t.Errorf("the server has written to a host that lives:\n%s", log)
			}
		})
	}
}
