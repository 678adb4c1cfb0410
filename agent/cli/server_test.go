package cli_test

import (
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	serveranswer "hostler.io/hostler/controlplane/server/answer"
	"hostler.io/hostler/internal/loop"
)

// serveFleet answers a path of the server's API.
func serveFleet(t *testing.T, path string, with any) (socket string) {
	t.Helper()
	folder, err := os.MkdirTemp("", "cli") // short, as in serve
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	socket = filepath.Join(folder, "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != path {
			http.NotFound(w, r)
			return
		}
		_ = json.NewEncoder(w).Encode(with)
	})}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	return socket
}

func TestFleetPlanNamesNodesThatNothingIsDueFor(t *testing.T) {
	since := time.Date(2026, 11, 17, 14, 3, 0, 0, time.UTC)
	socket := serveFleet(t, "/v1/fleet/plan", serveranswer.Plan{Controllers: []serveranswer.ControllerPlan{{
		Name: "node-lifecycle", State: serveranswer.Leading, At: "2026-11-17T14:04:00Z", Watches: "3 Nodes and their Leases",
		Settled: []serveranswer.Settled{
			{Node: "n1", Ready: "False", Next: "its pods stay until it has a NoExecute taint"},
			{Node: "n2", Ready: "Unknown", Taints: []string{"unreachable:NoSchedule", "unreachable:NoExecute"}, NoExecuteSince: &since, Next: "its pods leave after their toleration"},
		},
	}}})
	golden(t, "fleet/plan-settled", hostler("", "fleet", "plan", "--socket", socket).stdout)
}

func TestFleetPlanSaysWhoExecutes(t *testing.T) {
	var plan serveranswer.Plan
	for _, state := range []string{serveranswer.Leading, serveranswer.Standby, serveranswer.Yielding, serveranswer.Starting, serveranswer.Disabled, serveranswer.NotApplicable} {
		plan.Controllers = append(plan.Controllers, serveranswer.ControllerPlan{Name: "c-" + state, State: state, At: "2026-11-17T14:04:00Z", Watches: "3 Nodes"})
	}
	plan.Controllers = append(plan.Controllers, serveranswer.ControllerPlan{Name: "busy", State: serveranswer.Standby, At: "2026-11-17T14:04:00Z", Actions: []serveranswer.Action{
		{Object: "nodes/n1", Action: "add taint a:NoExecute", Reason: "no sign of life"},
	}})
	golden(t, "fleet/plan-states", hostler("", "fleet", "plan", "--socket", serveFleet(t, "/v1/fleet/plan", plan)).stdout)
}

func TestFleetStatusTellsMissingRightsFromSilence(t *testing.T) {
	for name, store := range map[string]serveranswer.Store{
		"refused": {Type: "etcd", Endpoint: "https://e1:2379", Refused: true, Error: "ping: " + refusal},
		"silent":  {Type: "etcd", Endpoint: "https://e1:2379", Error: "connection refused"},
	} {
		socket := serveFleet(t, "/v1/fleet/status", serveranswer.Status{
			Version: "1.2.3", Candidate: "e1_1_a", Store: store,
			Controllers: []serveranswer.Controller{{Name: "clones", State: serveranswer.Starting, Paused: "the store does not answer", Message: "election: elect elections/clones: " + store.Error}},
			Loops:       []loop.Health{{Name: "nodes", LastError: "follow nodes: " + store.Error}},
		})
		golden(t, "fleet/status-"+name, hostler("", "fleet", "status", "--socket", socket).stdout)
	}
}
