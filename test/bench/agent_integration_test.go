//go:build integration

package bench_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/agent/config"
	"hostler.io/hostler/test/lab"
)

const (
	// patience limits every wait. Only an error makes a wait that long.
	patience = time.Minute
	// metricsURL is the default URL of the agent's metrics.
	metricsURL = "http://127.0.0.1:9754/metrics"
	// callMetric is the metric of the agent's calls to runtimes.
	callMetric = "hostler_runtime_call_duration_seconds_count"
)

// agent is a `hostler agent` with the default configuration, except for the folder of its state.
type agent struct {
	process
	cmd     *exec.Cmd
	began   time.Time // just before it was started
	ended   chan struct{}
	log     *bytes.Buffer // read it only after end
	api     *api.Client
	service *lab.Notify // its service manager
	closed  bool        // end was called
}

// startAgent starts an agent on the state of an earlier one, or on no state.
func startAgent(b *testing.B, fresh bool) *agent {
	b.Helper()
	return startAgentWith(b, fresh, "")
}

// startAgentWith starts an agent with additional settings and environment variables.
func startAgentWith(b *testing.B, fresh bool, settings string, environ ...string) *agent {
	b.Helper()
	file, folder := filepath.Join(scratch, "hostler.yaml"), stateFolder(b)
	if fresh {
		check(b, os.RemoveAll(folder))
	}
	check(b, os.MkdirAll(scratch, 0o755))
	check(b, os.WriteFile(file, fmt.Appendf(nil, "state: {directory: %s}\n%s", folder, settings), 0o644))
	service, err := lab.StartNotify(4)
	check(b, err)
	a := &agent{process: process{b: b}, ended: make(chan struct{}), log: &bytes.Buffer{}, api: api.NewClient(config.DefaultSocket), service: service}
	a.cmd = exec.Command(binary, "agent", "--config", file)
	a.cmd.Env = append([]string{"PATH=" + os.Getenv("PATH")}, environ...)
	a.cmd.Stdout, a.cmd.Stderr = a.log, a.log
	a.began = time.Now()
	check(b, service.Start(a.cmd))
	a.pid = a.cmd.Process.Pid
	go func() {
		_ = a.cmd.Wait() // the exit code is in ProcessState
		close(a.ended)
	}()
	return a
}

// stateFolder returns the folder of the agent's state.
func stateFolder(b *testing.B) string {
	b.Helper()
	folder, err := filepath.Abs(filepath.Join(scratch, "state"))
	check(b, err)
	return folder
}

// await reads the status until wanted returns true.
func (a *agent) await(what string, wanted func(api.Status) bool) api.Status {
	a.b.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		s, err := a.api.Status(a.b.Context())
		if err == nil && wanted(s) {
			return s
		}
		select {
		case <-a.ended:
			a.b.Fatalf("the agent has ended:\n%s", a.log)
		default:
		}
		if time.Now().After(deadline) {
			a.end(syscall.SIGKILL)
			a.b.Fatalf("waited %v in vain: %s; last error: %v, status: %+v\n%s", patience, what, err, s, a.log)
		}
	}
}

// end sends a signal to the agent and waits for its end. Further calls do nothing.
func (a *agent) end(s syscall.Signal) {
	a.b.Helper()
	if a.closed {
		return
	}
	a.closed = true
	if err := a.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		a.b.Fatal(err)
	}
	select {
	case <-a.ended:
	case <-time.After(patience):
		a.b.Fatal("the agent does not end")
	}
	check(a.b, a.service.Close())
}

// calls returns how many calls to runtimes the agent has made, by method.
func (a *agent) calls() map[string]float64 {
	a.b.Helper()
	answer, err := http.Get(metricsURL)
	check(a.b, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	check(a.b, err)
	counts := map[string]float64{}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, callMetric); ok {
			labels, value, _ := strings.Cut(rest, "} ")
			_, method, _ := strings.Cut(labels, `method="`)
			method, _, _ = strings.Cut(method, `"`)
			counts[method] += parse(a.b, strings.TrimSpace(value))
		}
	}
	return counts
}

func parse(b *testing.B, s string) float64 {
	b.Helper()
	v, err := strconv.ParseFloat(s, 64)
	check(b, err)
	return v
}
