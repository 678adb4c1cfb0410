//go:build integration

package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/agent/config"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/test/lab"
	"hostler.io/hostler/test/lab/unit"
)

// patience limits every wait. Only an error makes a wait that long.
const patience = 5 * time.Minute

// agent is a `hostler agent` as systemd runs it, with all restrictions of hostler.service. It can
// be started, ended in every way, and started again with its state.
type agent struct {
	t      testing.TB
	config string // configuration file; empty: none, and all default paths
	folder string // of configuration, socket and state
	socket string
	state  string
	log    string
	notify *lab.Notify // nil: no service manager
	island *island     // nil: it uses the lab's network
	dropIn []string    // a drop-in of the unit
	env    []string

	process *unit.Process // nil before the first start
	api     *api.Client
}

// newAgent prepares an agent with its own configuration, but does not start it. settings are
// additional YAML lines, besides those for socket, state and runtime.
func newAgent(t testing.TB, settings string) *agent {
	t.Helper()
	a := newBareAgent(t)
	a.config = filepath.Join(a.folder, "hostler.yaml")
	a.socket = filepath.Join(a.folder, "hostler.sock")
	a.state = filepath.Join(a.folder, "state")
	a.api = api.NewClient(a.socket)
	a.configure(settings)
	return a
}

// newBareAgent prepares an agent without any configuration.
func newBareAgent(t testing.TB) *agent {
	t.Helper()
	folder, err := os.MkdirTemp(lab.Dir, "agent-")
	check(t, err)
	check(t, os.Chmod(folder, 0o755)) // members of group hostler may enter
	a := &agent{t: t, folder: folder, log: filepath.Join(folder, "log"), socket: config.DefaultSocket, state: "/var/lib/hostler"}
	a.api = api.NewClient(a.socket)
	t.Cleanup(func() {
		if a.running() {
			a.kill()
		}
		if t.Failed() {
			t.Logf("log of the agent:\n%s", a.logged())
		}
		check(t, os.RemoveAll(folder))
	})
	return a
}

// configure writes the configuration again. By default, the runtime is the shared containerd, and
// metrics are not served.
func (a *agent) configure(settings string) {
	a.t.Helper()
	text := fmt.Sprintf("api: {socket: %s}\nstate: {directory: %s}\n%s\n", a.socket, a.state, settings)
	for key, value := range map[string]string{
		"runtimes": "[{type: cri, endpoint: " + containerd.Endpoint + "}]",
		"metrics":  `{listen: ""}`,
	} {
		if !strings.Contains("\n"+settings, "\n"+key+":") {
			text += key + ": " + value + "\n"
		}
	}
	check(a.t, os.WriteFile(a.config, []byte(text), 0o644))
}

// startAgent prepares an agent, starts it and waits until it answers.
func startAgent(t testing.TB, settings string) *agent {
	t.Helper()
	a := newAgent(t, settings)
	a.start()
	return a
}

// start runs the agent and waits until it answers.
func (a *agent) start() {
	a.t.Helper()
	a.launch()
	eventually(a.t, "the agent answers", func() bool {
		if !a.running() {
			a.t.Fatalf("the agent has ended: %v", a.process)
		}
		_, err := a.api.Status(a.t.Context())
		return err == nil
	})
}

// launch starts the agent without waiting.
func (a *agent) launch() {
	a.t.Helper()
	log, err := os.OpenFile(a.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	check(a.t, err)
	defer log.Close()
	args := []string{"agent"}
	if a.config != "" {
		args = append(args, "--config", a.config)
	}
	cmd := exec.Command(binary, args...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH")}, a.env...)
	cmd.Stdout, cmd.Stderr = log, log
	more := a.dropIn
	if a.island != nil {
		more = append(slices.Clone(more), "NetworkNamespacePath="+a.island.file())
	}
	start := func() (err error) {
		a.process, err = units.Start(cmd, more...)
		return err
	}
	if a.notify != nil {
		check(a.t, a.notify.StartBy(cmd, start))
	} else {
		check(a.t, start())
	}
}

func (a *agent) running() bool { return a.process != nil && a.process.Running() }

func (a *agent) signal(s syscall.Signal) {
	a.t.Helper()
	check(a.t, a.process.Signal(s))
}

// exit waits for the agent's end and returns its exit code.
func (a *agent) exit() int {
	a.t.Helper()
	select {
	case <-a.process.Done:
	case <-time.After(patience):
		a.t.Fatalf("the agent still runs after %v", patience)
	}
	return a.process.ExitCode()
}

// stop stops the agent as `systemctl stop` does.
func (a *agent) stop() {
	a.t.Helper()
	a.signal(syscall.SIGTERM)
	if code := a.exit(); code != 0 {
		a.t.Errorf("exit code after SIGTERM = %d, want 0", code)
	}
}

// kill kills the agent.
func (a *agent) kill() {
	a.t.Helper()
	a.signal(syscall.SIGKILL)
	a.exit()
}

// logged returns the log of all runs of the agent.
func (a *agent) logged() string {
	a.t.Helper()
	text, err := os.ReadFile(a.log)
	check(a.t, err)
	return string(text)
}

// logLines returns the log lines that contain every part.
func (a *agent) logLines(parts ...string) []string {
	a.t.Helper()
	var lines []string
lines:
	for line := range strings.Lines(a.logged()) {
		for _, part := range parts {
			if !strings.Contains(line, part) {
				continue lines
			}
		}
		lines = append(lines, strings.TrimSpace(line))
	}
	return lines
}

// status reads the status over the agent's socket.
func (a *agent) status() api.Status {
	a.t.Helper()
	s, err := a.api.Status(a.t.Context())
	check(a.t, err)
	return s
}

// onSocket returns a client of the agent's socket.
func (a *agent) onSocket() *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", a.socket)
	}}}
}

// await reads the status until awaited returns true, and returns it.
func (a *agent) await(what string, awaited func(api.Status) bool) api.Status {
	a.t.Helper()
	var s api.Status
	eventually(a.t, what, func() bool {
		var err error
		if s, err = a.api.Status(a.t.Context()); err != nil && !a.running() {
			a.t.Fatalf("the agent has ended: %v", err)
		}
		return err == nil && awaited(s)
	})
	return s
}

// awaitGuard waits until the shutdown guard is in a state.
func (a *agent) awaitGuard(state shutdown.State) api.Status {
	a.t.Helper()
	return a.await("the shutdown guard is "+state.String(), func(s api.Status) bool { return s.Shutdown.State == state })
}

// awaitReady waits until the condition Ready has a status.
func (a *agent) awaitReady(status corev1.ConditionStatus) api.Status {
	a.t.Helper()
	return a.await("Ready is "+string(status), func(s api.Status) bool { return condition(s, corev1.NodeReady).Status == status })
}

// answer is the output and the exit code of a command.
type answer struct {
	out, err string
	code     int
	took     time.Duration
}

// hostler runs a command with the agent's socket.
func (a *agent) hostler(args ...string) answer {
	a.t.Helper()
	return command(a.t, []string{"HOSTLER_SOCKET=" + a.socket}, args...)
}

// prints runs a command that must succeed, and returns its output.
func (a *agent) prints(args ...string) string {
	a.t.Helper()
	r := a.hostler(args...)
	if r.code != 0 {
		a.t.Fatalf("hostler %s: exit code %d\n%s", strings.Join(args, " "), r.code, r.err)
	}
	return r.out
}

// screen returns the output of `hostler status` without its line breaks.
func (a *agent) screen() string {
	a.t.Helper()
	return onOneLine(a.prints("status"))
}

func onOneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// answers runs a command that must succeed, and decodes its JSON.
func answers[T any](a *agent, args ...string) T {
	a.t.Helper()
	var v T
	out := a.prints(append(args, "-o", "json")...)
	if err := json.Unmarshal([]byte(out), &v); err != nil {
		a.t.Fatalf("hostler %s printed no JSON: %v\n%s", strings.Join(args, " "), err, out)
	}
	return v
}

// command runs the binary with no environment variables but env.
func command(t testing.TB, env []string, args ...string) answer {
	t.Helper()
	return execute(t, exec.Command(binary, args...), env)
}

func execute(t testing.TB, cmd *exec.Cmd, env []string) answer {
	t.Helper()
	var out, errs bytes.Buffer
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH")}, env...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	check(t, cmd.Start())
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	defer stop()
	err := cmd.Wait()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return answer{out: out.String(), err: errs.String(), code: cmd.ProcessState.ExitCode(), took: time.Since(began)}
}

// condition returns the Node's condition of a type; the zero value if there is none.
func condition(s api.Status, kind corev1.NodeConditionType) corev1.NodeCondition {
	for _, c := range nodeOf(s).Status.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return corev1.NodeCondition{}
}

// nodeOf returns the Node of a status; an empty one before the first check of the host.
func nodeOf(s api.Status) *corev1.Node {
	if s.Node == nil {
		return &corev1.Node{}
	}
	return s.Node
}

// loopOf returns the state of a loop in the status.
func loopOf(t testing.TB, s api.Status, name string) api.Loop {
	t.Helper()
	for _, l := range s.Loops {
		if l.Name == name {
			return l
		}
	}
	t.Fatalf("status lists no loop %q", name)
	return api.Loop{}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// eventually waits until true returns true. Only an error makes it reach its limit. It pauses for longer than true takes, which
// may run programs: tests that wait must leave the machine to others.
func eventually(t testing.TB, what string, true func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; {
		asked := time.Now()
		if true() {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("waited %v in vain: %s", patience, what)
		}
		time.Sleep(min(max(20*time.Millisecond, 2*time.Since(asked)), 2*time.Second))
	}
}

// mentions checks that a text contains every part.
func mentions(t testing.TB, what, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%s = %q, want it to mention %q", what, text, part)
		}
	}
}

// eventuallyMentions waits until a text contains every part: Events are published a moment after
// what they report.
func eventuallyMentions(t testing.TB, what string, text func() string, parts ...string) {
	t.Helper()
	eventually(t, fmt.Sprintf("%s mentions %q", what, parts), func() bool {
		now := text()
		return !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(now, p) })
	})
}

// within returns the test's context with the limit of every wait.
func within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}
