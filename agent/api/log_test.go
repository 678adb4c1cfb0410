package api_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"hostler.io/hostler/agent/api"
)

func TestALogIsAskedOfAContainer(t *testing.T) {
	for path, want := range map[string]api.LogRequest{
		"/v1/pods/default/web/containers/main/log":           {Namespace: "default", Pod: "web", Container: "main", Lines: 100},
		"/v1/pods/-/web/containers/main/log?tail=7":          {Pod: "web", Container: "main", Lines: 7},
		"/v1/pods/a/b%2Fc/containers/d%20e/log?tail=10000":   {Namespace: "a", Pod: "b/c", Container: "d e", Lines: 10000},
		"/v1/pods/..%2f/%2e%2e/containers/main/log?tail=1&x": {Namespace: "../", Pod: "..", Container: "main", Lines: 1},
	} {
		b := &backend{}
		w := ask(routes(b), 0, "GET", path, "")
		if w.Code != http.StatusOK || w.Body.String() != "ready\n" || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/plain") || w.Header().Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("GET %s = %d %q of %s, want the log as text", path, w.Code, w.Body, w.Header())
		}
		if len(b.logs) != 1 || b.logs[0] != want {
			t.Errorf("GET %s reached the agent as %+v, want %+v", path, b.logs, want)
		}
	}
}

func TestALogOfNoNumberOfLinesIsRefused(t *testing.T) {
	for _, tail := range []string{"", "0", "-1", "10001", "all", "1e3", "99999999999999999999"} {
		b := &backend{}
		w := ask(routes(b), 0, "GET", "/v1/pods/default/web/containers/main/log?tail="+tail, "")
		var e api.Error
		if err := json.Unmarshal(w.Body.Bytes(), &e); w.Code != http.StatusBadRequest || err != nil || !strings.Contains(e.Hint, "1 to 10000") || len(b.logs) > 0 {
			t.Errorf("tail=%s = %d %s, want 400 and a hint", tail, w.Code, w.Body)
		}
	}
}

// Logs may contain secrets.
func TestOnlyWhoMayActReadsLogs(t *testing.T) {
	const path = "/v1/pods/default/web/containers/main/log"
	for who, w := range map[string]*httptest.ResponseRecorder{
		"a member of the group":     ask(routes(&backend{}), uint32(os.Geteuid()+4711), "GET", path, ""),
		"a reader over the network": come(network(&backend{}), named("prometheus"), httptest.NewRequest("GET", path, nil)),
	} {
		if w.Code != http.StatusForbidden {
			t.Errorf("GET %s by %s = %d %s, want 403", path, who, w.Code, w.Body)
		}
	}
	if w := come(network(&backend{}), named("ops"), httptest.NewRequest("GET", path, nil)); w.Code != http.StatusOK {
		t.Errorf("GET %s by an actor = %d %s, want 200", path, w.Code, w.Body)
	}
}
