package metrics_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"hostler.io/hostler/controlplane/server/answer"
	"hostler.io/hostler/controlplane/server/metrics"
)

// served returns the metrics of a server in which everything occurs.
func served(t *testing.T) string {
	t.Helper()
	now := time.Now()
	state := answer.Status{
		Version: "1.2.3", Store: answer.Store{Since: &now},
		Controllers: []answer.Controller{{Name: "node-lifecycle", State: answer.Leading, Due: 1, Pending: 2, Failing: 3, Stored: 4, Conflicts: 5, Failed: 6, OldestDueSeconds: 7, WatchLagSeconds: 8}, {Name: "eviction", State: answer.Yielding, Waits: "listing pods: 3 so far"}, {Name: "reboots", State: answer.Disabled}},
		Zones:       []answer.Zone{{Name: "a", State: "Normal", Nodes: 5, NotReady: 1}, {State: "Empty"}},
		Problems:    []answer.Problem{{Object: "nodes/x"}, {Object: "slots/default"}},
		Slots:       []answer.SlotGroup{{Name: "default", Slots: 2, Holders: []answer.SlotHolder{{ID: "n1", Node: "n1", Since: now.Add(-2 * time.Hour), Late: true}}, Waiting: make([]answer.SlotRequest, 3)}},
		FleetLock:   map[string]uint64{"granted": 4},
	}
	w := httptest.NewRecorder()
	metrics.Handler(func() answer.Status { return state }).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("GET /metrics = %d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

func TestNamesAreAsPrometheusWantsThem(t *testing.T) {
	problems, err := promlint.New(strings.NewReader(served(t))).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

func TestTheStateIsServed(t *testing.T) {
	text := served(t)
	for _, want := range []string{
		`hostler_server_nodes{ready="true",state="Normal",zone="a"} 4`, `hostler_server_nodes{ready="false",state="Normal",zone="a"} 1`,
		`hostler_server_writes_total{controller="node-lifecycle",result="stored"} 4`, `hostler_server_writes_total{controller="node-lifecycle",result="conflict"} 5`,
		`hostler_server_writes_total{controller="node-lifecycle",result="failed"} 6`,
		`hostler_server_waits{controller="node-lifecycle"} 0`, `hostler_server_waits{controller="eviction"} 1`,
		`hostler_server_ignored_objects 1`, `hostler_server_slots{group="default"} 2`, `hostler_server_slots_held{group="default"} 1`, `hostler_server_slot_holder{group="default",node="n1"} 1`, `hostler_server_slots_waiting{group="default"} 3`,
		`hostler_server_slot_oldest_holder_seconds{group="default"} 720`, `hostler_server_fleetlock_answers_total{kind="granted"} 4`,
		`hostler_server_oldest_due_action_seconds{controller="node-lifecycle"} 7`, `hostler_server_watch_lag_seconds{controller="node-lifecycle"} 8`, `hostler_server_failing_objects{controller="node-lifecycle"} 3`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("metrics lack %s:\n%s", want, text)
		}
	}
}

func TestNobodyHasToLeadWhatThisServerDoesNotRun(t *testing.T) {
	text := served(t)
	for _, name := range []string{"eviction", "reboots"} {
		if strings.Contains(text, `hostler_server_leading{controller="`+name+`"}`) {
			t.Errorf("metrics say who leads %s, which is left to another program:\n%s", name, text)
		}
	}
}

func TestAlertsUseMetricsThatExist(t *testing.T) {
	text := served(t)
	for _, file := range []string{"hostler-server.rules.yml", "hostler-server.rules.test.yml"} {
		rules, err := os.ReadFile("../../../packaging/prometheus/" + file)
		if err != nil {
			t.Fatal(err)
		}
		names := regexp.MustCompile(`\bhostler_server_[a-z_]+\b`).FindAllString(string(rules), -1)
		if len(names) < 4 {
			t.Errorf("%s uses %d metrics", file, len(names))
		}
		for _, name := range names {
			if !strings.Contains(text, "\n"+name) {
				t.Errorf("%s uses %s, which the server does not serve", file, name)
			}
		}
	}
}

// A host chooses its zone, and may choose another one each minute. It gets no series of its own.
func TestZonesThatOneHostChoosesHaveNoSeries(t *testing.T) {
	state := answer.Status{Zones: []answer.Zone{{State: "Normal", Nodes: 1}, {Name: "alone", State: "FullDisruption", Nodes: 1, NotReady: 1}, {Name: "alone-too", State: "Normal", Nodes: 1}}}
	for i := range 200 {
		state.Zones = append(state.Zones, answer.Zone{Name: fmt.Sprint("z", i), State: "Normal", Nodes: 2 + i})
	}
	w := httptest.NewRecorder()
	metrics.Handler(func() answer.Status { return state }).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	text := w.Body.String()
	if n := strings.Count(text, "\nhostler_server_nodes{"); n != 2*102 {
		t.Errorf("series of Nodes = %d, want two for each of 100 zones, for Nodes without a zone, and for all others", n)
	}
	for _, want := range []string{
		`hostler_server_nodes{ready="true",state="Normal",zone=""} 1`, `hostler_server_nodes{ready="true",state="Normal",zone="z199"} 201`, `hostler_server_nodes{ready="true",state="Normal",zone="z100"} 102`,
		`hostler_server_nodes{ready="false",state="",zone="(others)"} 1`, `hostler_server_nodes{ready="true",state="",zone="(others)"} 5151`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("metrics lack %s", want)
		}
	}
}
