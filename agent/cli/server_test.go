package cli_test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hostler.io/hostler/agent/api"
	serveranswer "hostler.io/hostler/controlplane/server/answer"
	"hostler.io/hostler/internal/loop"
)

// serveFleet answers one path of the server's API.
func serveFleet(t *testing.T, path string, with any) (socket string) {
	t.Helper()
	return serveFleetAnswers(t, map[string]any{path: with})
}

// serveFleetAnswers answers several paths. An *api.Error is sent with its status.
func serveFleetAnswers(t *testing.T, answers map[string]any) (socket string) {
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
		with, known := answers[r.URL.Path]
		if !known {
			http.NotFound(w, r)
			return
		}
		if e, wrong := with.(*api.Error); wrong {
			w.WriteHeader(e.Status)
		}
		_ = json.NewEncoder(w).Encode(with)
	})}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	return socket
}

func TestFleetPlanNamesNodesWithoutADueAction(t *testing.T) {
	since := time.Date(2026, 11, 17, 14, 3, 0, 0, time.UTC)
	socket := serveFleet(t, "/v1/fleet/plan", serveranswer.Plan{Controllers: []serveranswer.ControllerPlan{{
		Name: "node-lifecycle", State: serveranswer.Leading, At: "2026-11-17T14:04:00Z", Watches: "3 Nodes and their Leases",
		Settled: []serveranswer.Settled{
			{Node: "n1", Ready: "False", Next: "its pods are not evicted before it has a NoExecute taint"},
			{Node: "n2", Ready: "Unknown", Taints: []string{"unreachable:NoSchedule", "unreachable:NoExecute"}, NoExecuteSince: &since, Next: "no pod on it is left to evict; if the host does not return, delete its Node: `hostler fleet delete nodes/n2 --dry-run`"},
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
	for _, state := range []string{serveranswer.Leading, serveranswer.Standby} {
		plan.Controllers = append(plan.Controllers, serveranswer.ControllerPlan{Name: "lists", State: state, Waits: "listing pods: 12000 so far", Watches: "3 Nodes"})
	}
	plan.Controllers = append(plan.Controllers, serveranswer.ControllerPlan{Name: "partly", State: serveranswer.Leading, Waits: "listing pods: 12000 so far", Actions: []serveranswer.Action{
		{Object: "nodes/n1", Action: "add taint a:NoExecute", Reason: "no sign of life"},
	}})
	golden(t, "fleet/plan-states", hostler("", "fleet", "plan", "--socket", serveFleet(t, "/v1/fleet/plan", plan)).stdout)
}

func TestFleetStatusDistinguishesMissingRightsFromNoAnswer(t *testing.T) {
	for name, store := range map[string]serveranswer.Store{
		"refused": {Type: "etcd", Endpoint: "https://e1:2379", Refused: true, Error: "ping: " + refusal},
		"silent":  {Type: "etcd", Endpoint: "https://e1:2379", Error: "connection refused"},
	} {
		socket := serveFleet(t, "/v1/fleet/status", serveranswer.Status{
			Version: "1.2.3", Candidate: "e1_1_a", Store: store, Nodes: 3,
			Controllers: []serveranswer.Controller{{Name: "clones", State: serveranswer.Starting, Waits: "the store does not answer", Message: "election: elect elections/clones: " + store.Error}},
			Loops:       []loop.Health{{Name: "nodes", LastError: "follow nodes: " + store.Error}},
		})
		golden(t, "fleet/status-"+name, hostler("", "fleet", "status", "--socket", socket).stdout)
	}
}

func TestFleetStatusDoesNotCountNodesThatAreNotRead(t *testing.T) {
	paused := []serveranswer.Controller{{Name: "node-lifecycle", State: serveranswer.Starting, Waits: "listing nodes: 2 so far"}}
	for want, s := range map[string]serveranswer.Status{
		"NODES unknown: listing nodes: 2 so far": {Controllers: paused},
		"NODES 3, 0 not ready":                   {Controllers: paused, Nodes: 3},
	} {
		got := hostler("", "fleet", "status", "--socket", serveFleet(t, "/v1/fleet/status", s)).stdout
		if !strings.Contains(strings.Join(strings.Fields(got), " "), want) {
			t.Errorf("fleet status = %s, want %q", got, want)
		}
	}
}

func TestFleetStatusSaysWhatIsNotKnown(t *testing.T) {
	s := serveranswer.Status{Version: "1.2.3", Candidate: "e1_1_a", Store: serveranswer.Store{Type: "etcd", Endpoint: "https://e1:2379", Since: &time.Time{}}, Nodes: 3, Controllers: []serveranswer.Controller{
		{Name: "eviction", State: serveranswer.Leading, Waits: "listing pods: 12000 so far"},
		{Name: "node-lifecycle", State: serveranswer.Leading, Waits: "listing pods: 12000 so far", Due: 2},
		{Name: "clones", State: serveranswer.Leading},
	}}
	out := hostler("", "fleet", "status", "--socket", serveFleet(t, "/v1/fleet/status", s)).stdout
	for controller, want := range map[string]string{
		"eviction": "eviction Leading this server ? ? 0 listing pods: 12000 so far", "node-lifecycle": "node-lifecycle Leading this server 2 ? 0 listing pods: 12000 so far",
		"clones": "clones Leading this server 0 0 0",
	} {
		if !strings.Contains(strings.Join(strings.Fields(out), " "), want) {
			t.Errorf("fleet status = %s, want of %s: %q", out, controller, want)
		}
	}
}

func TestFleetStatusNamesSomeOfManyProblems(t *testing.T) {
	s := serveranswer.Status{Version: "1.2.3", Candidate: "e1_1_a", Store: serveranswer.Store{Type: "etcd", Endpoint: "https://e1:2379", Since: &time.Time{}}}
	for i := range 1000 {
		s.Problems = append(s.Problems, serveranswer.Problem{Object: fmt.Sprintf("tickets/broken-%03d", i), Message: "cannot be read: unexpected end of JSON input", Hint: "fix or delete it in the store"})
	}
	for i := range 22 {
		s.Problems = append(s.Problems, serveranswer.Problem{Object: fmt.Sprintf("tickets/t%02d", i), Message: "cannot be written: " + refusal, Hint: "the server tries again"})
	}
	golden(t, "fleet/status-problems", hostler("", "fleet", "status", "--socket", serveFleet(t, "/v1/fleet/status", s)).stdout)
}

func TestFleetGCPlan(t *testing.T) {
	var many []serveranswer.Problem
	for i := range 1000 {
		many = append(many, serveranswer.Problem{Object: fmt.Sprintf("tickets/broken-%03d", i), Message: "unexpected end of JSON input", Hint: "fix or delete it in the store"})
	}
	for name, p := range map[string]serveranswer.GarbagePlan{
		"many":  {State: serveranswer.Leading, Objects: 12, Unreadable: many},
		"idle":  {State: serveranswer.Leading, Objects: 12},
		"lists": {State: serveranswer.Leading, Objects: 12000, Waits: "listing pods: 12000 so far"},
		"unread": {
			State: serveranswer.Leading, Objects: 12,
			Kinds: []serveranswer.Problem{{Object: "disks", Message: "conversion webhook failed", Hint: "fix what serves it"}},
		},
		"standby": {State: serveranswer.Standby, Objects: 1},
		"off":     {State: serveranswer.Disabled},
		"busy": {
			State: serveranswer.Leading, Objects: 5, Waits: "the store does not answer",
			Facts: []serveranswer.GarbageFact{
				{Object: "tickets/due", State: serveranswer.Due, Action: "delete", Reason: "owner nodes/n1 does not exist"},
				{Object: "tickets/lost", State: serveranswer.Undecided, Reason: "owner disks/d: the store has no such type", Hint: "correct its ownerReferences"},
				{Object: "tickets/held", State: serveranswer.Waits, Reason: "finalizers of other programs: example.com/f"},
			},
			Kinds:      []serveranswer.Problem{{Object: "disks", Message: "conversion webhook failed", Hint: "fix what serves it"}},
			Unreadable: []serveranswer.Problem{{Object: "tickets/broken", Message: "unexpected end of JSON input", Hint: "fix or delete it in the store"}},
		},
	} {
		socket := serveFleet(t, "/v1/fleet/gc/plan", p)
		golden(t, "fleet/gc-plan-"+name, hostler("", "fleet", "gc", "plan", "--socket", socket).stdout)
	}
}

func TestFleetGet(t *testing.T) {
	created, deleted := ago(50*time.Hour), ago(5*time.Minute)
	socket := serveFleet(t, "/v1/fleet/objects", serveranswer.ObjectList{Kind: "tickets", Objects: []serveranswer.Object{
		{Name: "broken", Problem: "unexpected end of JSON input"},
		{Name: "disk-7", Owners: []string{"nodes/n1", "tickets/parent"}, Created: &created},
		{Name: "shop/fan-2", Owners: []string{"nodes/n2"}, Created: &created, Deleted: &deleted, Finalizers: []string{"example.com/f", "foregroundDeletion"}},
	}})
	golden(t, "fleet/get", hostler("", "fleet", "get", "tickets", "--socket", socket).stdout)
	golden(t, "fleet/get-none", hostler("", "fleet", "get", "leases", "--socket", serveFleet(t, "/v1/fleet/objects", serveranswer.ObjectList{Kind: "leases"})).stdout)

	golden(t, "fleet/get-events", hostler("", "fleet", "get", "events", "--socket", serveFleet(t, "/v1/fleet/objects", serveranswer.ObjectList{Kind: "events", Objects: []serveranswer.Object{
		{Name: "n1/n1.18a1", Event: &serveranswer.Event{Type: "Normal", Reason: "Registered", Message: "Node registered by hostler", Count: 2, LastSeen: ago(time.Minute)}},
		{Name: "n2/n2.18a0", Event: &serveranswer.Event{Type: "Warning", Reason: "NodeNotReady", Message: "Node n2 is not ready", Count: 1, LastSeen: ago(5 * time.Minute)}},
		{Name: "n3/broken", Problem: "unexpected end of JSON input"},
	}})).stdout)

	one := serveFleet(t, "/v1/fleet/objects", json.RawMessage(`{"kind":"Ticket","spec":{"big":12345678901234567890,"text":"a\u001b[31m"}}`))
	for format, want := range map[string]string{
		"table": "kind: Ticket\nspec:\n  big: 12345678901234567890\n  text: \"a\\e[31m\"\n",
		"json":  "{\n  \"kind\": \"Ticket\",\n  \"spec\": {\n    \"big\": 12345678901234567890,\n    \"text\": \"a\\u001b[31m\"\n  }\n}\n",
	} {
		if got := hostler("", "fleet", "get", "tickets/disk-7", "--socket", one, "-o", format); got.code != 0 || got.stdout != want {
			t.Errorf("fleet get -o %s = %d %q, want %q; %s", format, got.code, got.stdout, want, got.stderr)
		}
	}
}

func TestFleetDelete(t *testing.T) {
	plan := serveranswer.Deletion{
		DeletionRequest: serveranswer.DeletionRequest{Object: "nodes/n1", Cascade: "background", UID: "u", Version: "7"},
		Objects: []serveranswer.Branch{
			{Object: "nodes/n1", Fate: "deleted"},
			{Object: "leases/n1", Depth: 1, Fate: "deleted"},
			{Object: "tickets/disk-7", Depth: 1, Fate: "deleted"},
			{Object: "tickets/note", Depth: 2, Fate: "kept", Note: "owner tickets/other remains"},
			{Object: "tickets/old", Depth: 2, Fate: "orphaned"},
			{Object: "events/n1/a.1", Depth: 1, Fate: "deleted"},
			{Object: "events/n1/a.2", Depth: 1, Fate: "deleted"},
			{Object: "events/n1/a.3", Depth: 1, Fate: "deleted"},
			{Object: "events/n1/a.4", Depth: 1, Fate: "kept", Note: "owner tickets/other remains"},
			{Object: "events/n2/a.1", Depth: 1, Fate: "kept", Note: "owner tickets/other remains"},
		},
		Warnings: []string{"the host is alive: its agent registers the Node again. To remove the host, run `hostler leave` there"},
	}
	const request, planned = "/v1/fleet/delete", "/v1/fleet/delete/plan"
	socket := serveFleetAnswers(t, map[string]any{planned: plan, request: serveranswer.Deletion{Requested: true}})
	golden(t, "fleet/delete", hostler("", "fleet", "delete", "nodes/n1", "--socket", socket).stdout)
	dry := serveFleet(t, planned, plan) // no other request is allowed
	golden(t, "fleet/delete-dry-run", hostler("", "fleet", "delete", "nodes/n1", "--dry-run", "--socket", dry).stdout)
	golden(t, "fleet/delete-dry-run-wide", hostler("", "fleet", "delete", "nodes/n1", "--dry-run", "-o", "wide", "--socket", dry).stdout)
	refused := serveFleetAnswers(t, map[string]any{planned: plan, request: &api.Error{Message: "only root may do this", Hint: "run the command with sudo", Status: http.StatusForbidden}})
	if got := hostler("", "fleet", "delete", "nodes/n1", "--socket", refused); got.code != 1 || got.stdout != "" || !strings.Contains(got.stderr, "hint: run the command with sudo") {
		t.Errorf("fleet delete that is refused = %+v, want exit code 1 and the hint", got)
	}
	for _, args := range [][]string{{}, {""}, {"nodes/n1", "nodes/n2"}, {"nodes/n1", "--cascade=forground"}} {
		if got := hostler("", append([]string{"fleet", "delete", "--socket", dry}, args...)...); got.code != 2 || !strings.Contains(got.stderr, "hint: ") {
			t.Errorf("fleet delete %q = %+v, want exit code 2 and a hint", args, got)
		}
	}
}
