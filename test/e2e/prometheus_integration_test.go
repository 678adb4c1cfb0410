//go:build integration

package e2e_test

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"hostler.io/hostler/test/etcd"
	"hostler.io/hostler/test/lab"
)

// scrapeInterval is the time between scrapes, between evaluations of the rules, and the longest time of a scrape.
const scrapeInterval = 2 * time.Second

// prometheus is a Prometheus with the packaged alerts.
type prometheus struct {
	t      *testing.T
	daemon *lab.Daemon
	at     string // URL
}

// startPrometheus starts one that listens at an address, and scrapes the given jobs.
func startPrometheus(t *testing.T, address, jobs string) *prometheus {
	t.Helper()
	folder := t.TempDir()
	rules, err := filepath.Abs("../../packaging/prometheus")
	check(t, err)
	config := fmt.Sprintf("global: {scrape_interval: %[1]s, evaluation_interval: %[1]s}\nrule_files: [%[2]s/hostler.rules.yml, %[2]s/hostler-server.rules.yml]\nscrape_configs:\n%[3]s", scrapeInterval, rules, jobs)
	file := filepath.Join(folder, "prometheus.yml")
	check(t, os.WriteFile(file, []byte(config), 0o600))
	p := &prometheus{t: t, at: "http://" + address}
	p.daemon = lab.NewDaemon("prometheus", lab.In(t).Tools.Prometheus, folder, nil,
		"--config.file="+file, "--storage.tsdb.path="+filepath.Join(folder, "data"), "--web.listen-address="+address)
	check(t, p.daemon.Start())
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of prometheus:\n%s", p.daemon.Log(30))
		}
		check(t, p.daemon.Kill())
	})
	check(t, p.daemon.Await(within(t), func(ctx context.Context) error {
		return p.ask(ctx, "status/buildinfo", &struct{}{})
	}))
	return p
}

// ask requests a path of the API, and decodes the data of the answer.
func (p *prometheus) ask(ctx context.Context, path string, data any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.at+"/api/v1/"+path, nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	body := struct {
		Error string
		Data  any
	}{Data: data}
	if err := json.NewDecoder(answer.Body).Decode(&body); err != nil {
		return err
	}
	if body.Error != "" {
		return errors.New(body.Error)
	}
	return nil
}

// becomes waits until a query has a result.
func (p *prometheus) becomes(query string) {
	p.t.Helper()
	eventually(p.t, "Prometheus finds "+query, func() bool {
		var data struct{ Result []any }
		check(p.t, p.ask(within(p.t), "query?query="+url.QueryEscape(query), &data))
		return len(data.Result) > 0
	})
}

// ruleGroups are the groups of rules.
type ruleGroups struct {
	Groups []struct {
		LastEvaluation time.Time
		Rules          []struct{ Name, Health, LastError string }
	}
}

func (p *prometheus) rules() (r ruleGroups) {
	p.t.Helper()
	check(p.t, p.ask(within(p.t), "rules", &r))
	return r
}

// evaluated waits until all rules were evaluated with what Prometheus has scraped so far.
func (p *prometheus) evaluated() {
	p.t.Helper()
	now := time.Now()
	eventually(p.t, "the rules are evaluated again", func() bool {
		for _, g := range p.rules().Groups { // a rule is evaluated for a time up to an interval ago
			if !g.LastEvaluation.After(now.Add(2 * scrapeInterval)) {
				return false
			}
		}
		return true
	})
}

// alerts reports whether an alert is pending or firing.
func (p *prometheus) alerts(name string) bool {
	p.t.Helper()
	var data struct {
		Alerts []struct{ Labels map[string]string }
	}
	check(p.t, p.ask(within(p.t), "alerts", &data))
	for _, a := range data.Alerts {
		if a.Labels["alertname"] == name {
			return true
		}
	}
	return false
}

// documentedJob returns the only job of docs/howto/metrics.md with that text, without the line before
// the list. with has pairs of a text and its replacement.
func documentedJob(t *testing.T, text string, with ...string) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/howto/metrics.md")
	check(t, err)
	jobs := slices.DeleteFunc(strings.Split(string(page), "```"), func(block string) bool {
		return !strings.Contains(block, "\nscrape_configs:\n") || !strings.Contains(block, text)
	})
	if len(jobs) != 1 {
		t.Fatalf("docs/howto/metrics.md has %d jobs with %q, want 1", len(jobs), text)
	}
	_, job, _ := strings.Cut(jobs[0], "scrape_configs:\n")
	for i := 0; i < len(with); i += 2 {
		if strings.Count(job, with[i]) != 1 {
			t.Fatalf("the job\n%shas not %q once", job, with[i])
		}
		job = strings.Replace(job, with[i], with[i+1], 1)
	}
	return job
}

// TestPrometheusAlerts has a Prometheus with the documented jobs and the packaged alerts. The agent
// dies, the host reboots in its turn, and the server dies.
func TestPrometheusAlerts(t *testing.T) {
	t.Parallel()
	const agentAt, serverAt, own = "127.0.0.1:19755", "127.0.0.1:19756", "127.0.0.1:19090"
	f := newFleet(t, etcd.Options{})
	runtime := lab.ContainerdFor(t, lab.ContainerdOptions{})
	h := newRebooter(t, "h1", f.settings("h1", "")+rebootPace+"runtimes: [{type: cri, endpoint: "+runtime.Endpoint+"}]\n")
	client := h.overNetwork(agentAt).sign("prometheus", x509.ExtKeyUsageClientAuth)
	in := func(name string) string { return filepath.Join(h.folder, name) }
	check(t, errors.Join(os.WriteFile(in("prometheus.crt"), client.Certificate, 0o600), os.WriteFile(in("prometheus.key"), client.Key, 0o600)))
	h.boot()
	eventually(t, "h1 is there, Ready and alive", f.well("h1"))
	s := newServer(t)
	s.configure(f.served("reboots: {groups: {default: {slots: 1, maxUnavailable: 1}}}\ncontrollers: [node-lifecycle, reboots]\n"))
	check(t, os.Mkdir(filepath.Join(s.folder, "server.d"), 0o755))
	check(t, os.WriteFile(filepath.Join(s.folder, "server.d", "metrics.yaml"), []byte("metrics: {listen: "+serverAt+"}\n"), 0o644))
	s.start()
	p := startPrometheus(t, own,
		documentedJob(t, "scheme: https", "192.0.2.7:9755", agentAt, "rack1-node1", "h1", "hosts.crt", in("ca.crt"), "prometheus.crt", in("prometheus.crt"), "prometheus.key", in("prometheus.key"))+
			documentedJob(t, "job_name: hostler-server", "127.0.0.1:9756", serverAt))

	p.becomes(`up{job="hostler",node="h1"} == 1`)
	p.becomes(`up{job="hostler-server"} == 1`)
	p.becomes(`hostler_condition{node="h1",type="Ready",status="True"} == 1`)
	p.becomes(`hostler_reboot_step{node="h1",step="Done"} == 1`)
	p.evaluated()
	names := []string{}
	for _, g := range p.rules().Groups {
		for _, r := range g.Rules {
			names = append(names, r.Name)
			if r.Health != "ok" {
				t.Errorf("rule %s is %s: %s", r.Name, r.Health, r.LastError)
			}
		}
	}
	for _, name := range []string{"HostlerDown", "HostlerServerDown"} {
		if !slices.Contains(names, name) {
			t.Errorf("rules = %q, want %s among them", names, name)
		}
		eventually(t, "there is no alert "+name+" while both are up", func() bool { return !p.alerts(name) })
	}

	h.dies()
	eventually(t, "HostlerDown is pending for an agent that died", func() bool { return p.alerts("HostlerDown") })
	h.boot()
	eventually(t, "HostlerDown is over", func() bool { return !p.alerts("HostlerDown") })

	h.prints("reboot", "--reason", "new kernel")
	h.goesDown()
	p.becomes(`hostler_reboot_step{node="h1",step="Rebooting"} == 1`)
	p.becomes(`hostler_server_slot_holder{node="h1"} == 1`)
	h.dies()
	p.becomes(`up{job="hostler",node="h1"} == 0`)
	p.evaluated()
	eventually(t, "HostlerDown is not pending for a host that holds a slot and reboots", func() bool { return !p.alerts("HostlerDown") })

	s.end(syscall.SIGKILL)
	eventually(t, "HostlerServerDown is pending for a server that died", func() bool { return p.alerts("HostlerServerDown") })
}
