//go:build integration

package e2e_test

import (
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/test/lab"
)

// promtool is Prometheus' own checker.
func promtool(t *testing.T, in string, args ...string) {
	t.Helper()
	tool := lab.In(t).Tools.Promtool
	cmd := exec.CommandContext(t.Context(), tool.Path, args...)
	cmd.Env = append(os.Environ(), tool.Environ()...)
	cmd.Stdin = strings.NewReader(in)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("promtool %s = %v: %s", strings.Join(args, " "), err, out)
	}
}

func TestPromtoolFindsNoFaultWithWhatAnAgentServes(t *testing.T) {
	t.Parallel()
	a := startAgent(t, quick)
	a.await("the loops have done a round", func(s api.Status) bool {
		return s.Lease != nil && s.ImageGC.LastRun != nil && s.ContainerGC.LastRun != nil
	})
	resp, err := a.onSocket().Get("http://hostler/metrics")
	check(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	check(t, err)
	if resp.StatusCode != http.StatusOK || !strings.Contains(string(text), "hostler_build_info") {
		t.Fatalf("GET /metrics = %s, %.300s", resp.Status, text)
	}
	promtool(t, string(text), "check", "metrics")
	a.stop()
}

func TestPromtoolFindsNoFaultWithTheAlerts(t *testing.T) {
	t.Parallel()
	const folder = "../../packaging/prometheus/"
	for _, name := range []string{"hostler", "hostler-server"} {
		promtool(t, "", "check", "rules", folder+name+".rules.yml")
		promtool(t, "", "test", "rules", folder+name+".rules.test.yml")
	}
}
