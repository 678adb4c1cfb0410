package metrics_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/agent/metrics"
	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/internal/listen"
	"hostler.io/hostler/status"
	"hostler.io/hostler/status/reboots"
)

// bound is the time limit for an event that normally takes milliseconds.
const bound = 5 * time.Minute

// nothing is a State in which nothing is known.
func nothing() metrics.State { return metrics.State{} }

func TestRebootsAreCountedByWhetherTheyWereExpected(t *testing.T) {
	m := metrics.New().Handler(func() metrics.State {
		return metrics.State{Reboots: reboots.Counts{Expected: 12, Unexpected: 2, Unknown: 1}}
	})
	response := httptest.NewRecorder()
	m.ServeHTTP(response, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for _, want := range []string{`hostler_reboots_total{expected="true"} 12`, `hostler_reboots_total{expected="false"} 2`, `hostler_reboots_total{expected="unknown"} 1`} {
		if body := response.Body.String(); !strings.Contains(body, want) {
			t.Errorf("GET /metrics has no %s: %.300s", want, body)
		}
	}
}

func TestEachRuntimeHasItsOwnMetrics(t *testing.T) {
	m := metrics.New().Handler(func() metrics.State {
		return metrics.State{Runtimes: map[string]bool{"containerd": true, "/run/k3s/containerd.sock": false}}
	})
	response := httptest.NewRecorder()
	m.ServeHTTP(response, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	body := response.Body.String()
	for _, want := range []string{`hostler_runtime_ready{runtime="containerd"} 1`, `hostler_runtime_ready{runtime="/run/k3s/containerd.sock"} 0`} {
		if response.Code != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("GET /metrics = %d, want %s in %.300s", response.Code, want, body)
		}
	}
}

func TestTheCgroupVersionIsAMetricIfThereIsOne(t *testing.T) {
	for version, want := range map[int]string{2: "hostler_cgroup_version 2\n", 1: "hostler_cgroup_version 1\n", 0: ""} {
		response := httptest.NewRecorder()
		metrics.New().Handler(func() metrics.State { return metrics.State{CgroupVersion: version} }).
			ServeHTTP(response, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		if body := response.Body.String(); !strings.Contains(body, want) || strings.Contains(body, "hostler_cgroup_version") != (want != "") {
			t.Errorf("GET /metrics with cgroups of version %d = %.300s, want %q in it", version, body, want)
		}
	}
}

func TestTheStateOfConditionsAndOfARebootIsAMetric(t *testing.T) {
	var all []corev1.NodeCondition
	for i := range 160 { // twice each
		all = append(all, corev1.NodeCondition{Type: corev1.NodeConditionType(fmt.Sprintf("example.com/C%d", i/2)), Status: corev1.ConditionTrue})
	}
	for name, c := range map[string]struct {
		state      metrics.State
		want       []string
		conditions int // types
		steps      int
	}{
		"before the first check": {},
		"Ready, no reboot wanted": {metrics.State{
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}, {Type: "\xff", Status: "Odd"}}, RebootStep: controlplane.RebootDone,
		}, []string{
			`hostler_condition{status="True",type="Ready"} 1`, `hostler_condition{status="False",type="Ready"} 0`, `hostler_condition{status="Unknown",type="Ready"} 0`,
			`hostler_condition{status="Unknown",type="�"} 0`, `hostler_reboot_step{step="Done"} 1`, `hostler_reboot_step{step="Draining"} 0`,
		}, 2, 7},
		"more than fit": {metrics.State{Conditions: all}, []string{`hostler_condition{status="True",type="example.com/C63"} 1`}, 64, 0},
		"a step":        {metrics.State{RebootStep: controlplane.RebootDraining}, []string{`hostler_reboot_step{step="Draining"} 1`, `hostler_reboot_step{step="Done"} 0`}, 0, 7},
	} {
		response := httptest.NewRecorder()
		metrics.New().Handler(func() metrics.State { return c.state }).ServeHTTP(response, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		body := response.Body.String()
		for _, want := range c.want {
			if !strings.Contains(body, want) {
				t.Errorf("%s: GET /metrics = %d, lacks %s", name, response.Code, want)
			}
		}
		conditions, steps := strings.Count(body, "\nhostler_condition{"), strings.Count(body, "\nhostler_reboot_step{")
		if response.Code != http.StatusOK || conditions != 3*c.conditions || steps != c.steps {
			t.Errorf("%s: GET /metrics = %d with %d series of conditions and %d of steps, want %d and %d", name, response.Code, conditions, steps, 3*c.conditions, c.steps)
		}
	}
}

func TestChecksAreCountedByResult(t *testing.T) {
	m := metrics.New()
	m.Check("hostler.io/A", status.Problem, time.Second)
	m.Check("hostler.io/A", status.TimedOut, 10*time.Second)
	response := httptest.NewRecorder()
	m.Handler(nothing).ServeHTTP(response, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for _, want := range []string{
		`hostler_condition_checks_total{condition="hostler.io/A",result="problem"} 1`, `hostler_condition_checks_total{condition="hostler.io/A",result="timeout"} 1`,
		`hostler_condition_check_duration_seconds_sum{condition="hostler.io/A"} 11`,
	} {
		if !strings.Contains(response.Body.String(), want) {
			t.Errorf("GET /metrics lacks %s", want)
		}
	}
}

// If the port is in use, only the metrics fail.
func TestMetricsOnATakenPort(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	err = listen.ServeMetrics(t.Context(), metrics.New().Handler(nothing), l.Addr().String(), slog.New(slog.DiscardHandler), func() {})
	if err == nil || !strings.Contains(err.Error(), "address already in use; set metrics.listen to another port") {
		t.Errorf("Serve() = %v, want the port named as taken, with a hint", err)
	}
}

// For example if /etc/hosts has another address for localhost.
func TestMetricsStayOnLoopback(t *testing.T) {
	up := false
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	err := listen.ServeMetrics(ctx, metrics.New().Handler(nothing), "0.0.0.0:0", slog.New(slog.DiscardHandler), func() { up = true; cancel() })
	if up || err == nil || !strings.Contains(err.Error(), "beyond loopback; set metrics.listen to 127.0.0.1") {
		t.Errorf("Serve() at all addresses = %v, up %t, want it refused with a hint", err, up)
	}
}

func TestMetricsAreServedUntilTheEnd(t *testing.T) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	free.Close()
	m := metrics.New().Handler(nothing)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	up, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- listen.ServeMetrics(ctx, m, address, slog.New(slog.DiscardHandler), func() { close(up) })
	}()
	<-up
	resp, err := http.Get("http://" + address + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	if resp.Body.Close(); resp.StatusCode != http.StatusOK {
		t.Errorf("GET /metrics = %s, want 200", resp.Status)
	}
	cancel()
	select {
	case err := <-ended:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("Serve() = %v, want that it was cancelled", err)
		}
	case <-time.After(bound):
		t.Error("Serve() continues after its context has ended")
	}
}
