package metrics_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1 "k8s.io/api/core/v1"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"hostler.io/hostler/agent/metrics"
	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/gc"
	"hostler.io/hostler/gc/runs"
	"hostler.io/hostler/internal/loop"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/status"
)

// full returns the metrics of an agent to which every event has happened once.
func full(t *testing.T) string {
	t.Helper()
	now := time.Now()
	report := runs.Report{Duration: metav1.Duration{Duration: time.Second}, Candidates: 1, OldestCandidate: now.Add(-time.Hour), Kept: map[gc.Reason]int{gc.InUse: 1}}
	for _, kind := range []string{runs.KindImage, runs.KindContainer, runs.KindPod, runs.KindLog} {
		report.Removed = append(report.Removed, runs.Removal{Kind: kind, Reason: gc.LRU})
	}
	m := metrics.New()
	standing := func() metrics.State {
		s := metrics.State{
			Version: "1.2.3", LeaseRenewed: now, Loops: []loop.Health{{Name: "lease", Healthy: true}},
			Runtimes: map[string]bool{"containerd": true}, CgroupVersion: 2, Images: &report,
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}, RebootStep: controlplane.RebootDone,
		}
		s.Shutdown.InhibitDelayMax.Duration = time.Minute
		s.Shutdown.Last = &journal.Record{StartedAt: now, FinishedAt: now.Add(time.Second)}
		s.Shutdown.State = shutdown.Armed
		return s
	}
	m.Renewal(nil)
	m.StatusWrite(nil)
	m.Transition(corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue})
	m.Check("hostler.io/A", status.Problem, time.Second)
	m.Collection("image-gc", report)
	m.RuntimeCall("containerd", "ListImages", time.Second, errors.New("gone"))
	w := httptest.NewRecorder()
	m.Handler(standing).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("GET /metrics = %d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

// The rules of promtool for names, units and help, without promtool.
func TestNamesAreAsPrometheusWantsThem(t *testing.T) {
	problems, err := promlint.New(strings.NewReader(full(t))).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// An alert on a metric that does not exist never fires, and a panel stays empty.
func TestAlertsAndDashboardUseExistingMetrics(t *testing.T) {
	series := regexp.MustCompile(`(?m)^([a-z_]+)[{ ]`)
	var served []string
	for _, m := range series.FindAllStringSubmatch(full(t), -1) {
		served = append(served, m[1])
	}
	asked := map[string]bool{}
	for _, file := range []string{"prometheus/hostler.rules.yml", "prometheus/hostler.rules.test.yml", "grafana/hostler.json"} {
		text, err := os.ReadFile("../../packaging/" + file)
		if err != nil {
			t.Fatal(err)
		}
		names := regexp.MustCompile(`\b(hostler|process)_[a-z_]+\b`).FindAllString(string(text), -1)
		if len(names) < 10 {
			t.Errorf("%s asks for %d metrics, want those of all jobs", file, len(names))
		}
		for _, name := range names {
			asked[name] = true
			if !slices.Contains(served, name) && name != "hostler_server_slot_holder" { // of servers
				t.Errorf("%s asks for %s, which GET /metrics does not have", file, name)
			}
		}
	}
	for _, name := range []string{"hostler_lease_age_seconds", "hostler_shutdown_protected", "hostler_loop_healthy", "hostler_runtime_ready", "hostler_gc_freed_bytes_total", "hostler_config_last_reload_successful"} {
		if !asked[name] {
			t.Errorf("nothing asks for %s", name)
		}
	}
}

// Grafana must be able to read the dashboard: each panel has a position, and uses the selected data
// source.
func TestTheDashboardHoldsTogether(t *testing.T) {
	text, err := os.ReadFile("../../packaging/grafana/hostler.json")
	if err != nil {
		t.Fatal(err)
	}
	type place struct{ X, Y, W, H int }
	var board struct {
		Title, UID string
		Panels     []struct {
			ID         int
			Title      string
			GridPos    place
			Datasource struct{ UID string }
			Targets    []struct{ Expr, RefID string }
		}
	}
	if err := json.Unmarshal(text, &board); err != nil || board.Title == "" || board.UID == "" {
		t.Fatalf("the dashboard %q is none: %v", board.Title, err)
	}
	var places []place
	for i, p := range board.Panels {
		if p.ID != i+1 || p.Title == "" || len(p.Targets) == 0 || p.Datasource.UID != "${datasource}" {
			t.Errorf("panel %d is %+v, want its number, a title, a question and the source", i+1, p)
		}
		for _, target := range p.Targets {
			if !strings.Contains(target.Expr, `{job="$job",instance=~"$instance"}`) || target.RefID == "" {
				t.Errorf("panel %q asks %q of all hosts, want those that are picked", p.Title, target.Expr)
			}
		}
		at := p.GridPos
		for _, other := range places {
			if at.X < other.X+other.W && other.X < at.X+at.W && at.Y < other.Y+other.H && other.Y < at.Y+at.H {
				t.Errorf("panel %q lies on another one", p.Title)
			}
		}
		places = append(places, at)
		if at.X+at.W > 24 || at.W == 0 || at.H == 0 {
			t.Errorf("panel %q does not fit: %+v", p.Title, at)
		}
	}
}
