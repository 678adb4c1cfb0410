//go:build integration

package e2e_test

import (
	"bufio"
	"io"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"

	"hostler.io/hostler/agent/api"
)

// hangUp makes the agent reload its configuration.
const hangUp = syscall.SIGHUP

func TestAReloadTakesUpWhatItCanAndRefusesTheRestAsAWhole(t *testing.T) {
	t.Parallel()
	a := startAgent(t, "imageGC: {highThresholdPercent: 90}")
	reload := func(settings, text string) {
		t.Helper()
		a.configure(settings)
		before := len(a.logLines(text))
		a.signal(hangUp)
		eventually(t, "the log says "+text, func() bool { return len(a.logLines(text)) > before })
	}
	high := func() int { return a.status().ImageGC.HighThresholdPercent }

	reload("imageGC: {highThresholdPercent: 90}", "nothing changed")
	check(t, os.WriteFile(strings.TrimSuffix(a.config, ".yaml")+".yml", nil, 0o644))
	reload("imageGC: {highThresholdPercent: 90}", "not read, as its name does not end in .yaml")
	reload("imageGC: {highThresholdPercent: 95}", "imageGC.highThresholdPercent")
	if got := high(); got != 95 {
		t.Errorf("high threshold = %d, want 95", got)
	}

	reload("imageGC: {highThresholdPercent: 97}\nnode: {name: other}\nlease: {duration: 60s}", "reload rejected")
	mentions(t, "the refusal", a.logLines("reload rejected")[0], "node.name", "lease.duration", "cannot change while the agent runs", "systemctl restart hostler")
	if got := high(); got != 95 {
		t.Errorf("high threshold after a refused reload = %d, want 95 as before", got)
	}
	// The commands report it as well.
	if got := a.hostler("reload"); got.code != 1 {
		t.Errorf("hostler reload = %+v, want 1", got)
	} else {
		mentions(t, "hostler reload", got.err, "reload rejected", "node.name", "lease.duration", "systemctl restart hostler")
	}
	mentions(t, "hostler status", a.screen(), "configuration", "imageGC.highThresholdPercent", "node.name", "lease.duration", "systemctl restart hostler")
	if got := a.hostler("config", "show"); !strings.Contains(got.out, "highThresholdPercent: 95\n") {
		t.Errorf("hostler config show = %+v, want the effective configuration", got)
	} else {
		mentions(t, "its warning", got.err, "node.name", "lease.duration")
	}
	metric(t, a, "hostler_config_last_reload_successful", "0")
	reload("imageGC: {highThresholdPercent: much}", "is not a")
	if got := high(); got != 95 || !a.running() {
		t.Errorf("high threshold after a bad configuration = %d, want 95 as before", got)
	}
	reload("imageGC: {highThresholdPercent: 98}", `msg=reloaded changed=imageGC.highThresholdPercent`)
	if got := high(); got != 98 {
		t.Errorf("high threshold = %d, want 98", got)
	}
	a.configure("imageGC: {highThresholdPercent: 96}")
	if got := a.hostler("reload"); got.code != 0 || got.out != "now effective: imageGC.highThresholdPercent\n" || high() != 96 {
		t.Errorf("hostler reload = %+v with a high threshold of %d, want 96", got, high())
	}
	metric(t, a, "hostler_config_last_reload_successful", "1")
	a.stop()
}

// metricNames reads the names of the served metrics, with their labels.
func metricNames(t testing.TB, client *http.Client, url string) map[string]string {
	t.Helper()
	resp, err := client.Get(url)
	check(t, err)
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(resp.Body)
		t.Fatalf("GET %s = %s, %s", url, resp.Status, text)
	}
	names := map[string]string{}
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if line := lines.Text(); !strings.HasPrefix(line, "#") {
			name, value, _ := strings.Cut(line, " ")
			names[name] = value
			plain, _, _ := strings.Cut(name, "{")
			names[plain] = value
		}
	}
	return names
}

func TestMetricsAreOnTheSocketAndOnLoopback(t *testing.T) {
	t.Parallel()
	a := startAgent(t, quick+"metrics: {listen: 127.0.0.1:9754}")
	a.await("all loops have done a round", func(s api.Status) bool {
		return s.Lease != nil && s.ImageGC.LastRun != nil && s.ContainerGC.LastRun != nil && loopOf(t, s, "metrics").LastSuccess != nil
	})
	for where, names := range map[string]func() map[string]string{
		"on the socket": func() map[string]string { return metricNames(t, a.onSocket(), "http://hostler/metrics") },
		"on loopback":   func() map[string]string { return metricNames(t, http.DefaultClient, "http://127.0.0.1:9754/metrics") },
	} {
		for _, name := range []string{
			"hostler_build_info", "hostler_lease_age_seconds", `hostler_lease_renewals_total{result="success"}`,
			`hostler_status_writes_total{result="success"}`, `hostler_gc_runs_total{kind="image-gc",result="success"}`,
			`hostler_gc_runs_total{kind="container-gc",result="success"}`, "hostler_gc_run_duration_seconds_sum",
			"hostler_gc_requested_bytes_total", "hostler_gc_freed_bytes_total", `hostler_loop_healthy{loop="lease"}`,
			`hostler_loop_restarts_total{loop="lease"}`, `hostler_shutdown_state{state="Disarmed"}`,
			`hostler_runtime_ready{runtime="containerd"}`, "hostler_runtime_call_duration_seconds_count",
			"hostler_events_dropped_total", "process_resident_memory_bytes", "go_goroutines",
		} {
			eventually(t, where+" there is metric "+name, func() bool {
				_, ok := names()[name]
				return ok
			})
		}
		eventually(t, where+" runtime and lease are well", func() bool {
			all := names()
			return all["hostler_runtime_ready{runtime=\"containerd\"}"] == "1" && all[`hostler_loop_healthy{loop="lease"}`] == "1"
		})
	}

	// A port that is in use does not stop an agent.
	b := startAgent(t, quick+"metrics: {listen: 127.0.0.1:9754}")
	s := b.await("the port is found taken", func(s api.Status) bool { return s.Lease != nil && !loopOf(t, s, "metrics").Healthy })
	mentions(t, "error of the loop", loopOf(t, s, "metrics").LastError, "127.0.0.1:9754", "address already in use", "set metrics.listen to another port")
	mentions(t, "hostler status", b.screen(), "loop metrics", "127.0.0.1:9754")
	a.stop()
	b.await("the port is taken over", func(s api.Status) bool { return loopOf(t, s, "metrics").Healthy })
	b.stop()
}
