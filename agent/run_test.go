package agent

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/agent/config"
	"hostler.io/hostler/agent/owner"
	"hostler.io/hostler/internal/logtest"
	"hostler.io/hostler/internal/loop"
	"hostler.io/hostler/systemd/notify"
)

const nodeName = "node-a"

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

func ready(n *corev1.Node) corev1.NodeCondition {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c
		}
	}
	return corev1.NodeCondition{}
}

// bound is the time limit for an event that normally takes milliseconds.
const bound = 5 * time.Minute

// manager is a service manager that receives notifications.
type manager struct {
	socket string
	conn   *net.UnixConn
}

func newManager(t *testing.T) *manager {
	t.Helper()
	m := &manager{socket: filepath.Join(folder(t), "n")}
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: m.socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	m.conn = conn
	return m
}

// next returns the next notification; empty if none arrives in time.
func (m *manager) next(t *testing.T, within time.Duration) string {
	t.Helper()
	buffer := make([]byte, 4096)
	if err := m.conn.SetReadDeadline(time.Now().Add(within)); err != nil {
		t.Fatal(err)
	}
	n, err := m.conn.Read(buffer)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
	return string(buffer[:n])
}

// expects waits for a notification that starts with want.
func (m *manager) expects(t *testing.T, want string) {
	t.Helper()
	var states []string
	for end := time.Now().Add(bound); time.Now().Before(end); {
		got := m.next(t, time.Until(end))
		if strings.HasPrefix(got, want) {
			return
		}
		states = append(states, got)
	}
	t.Fatalf("the service manager received %q, want %q", states, want)
}

// folder has a short path, because the path of a socket is limited to 107 bytes.
func folder(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "agent")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// rig has what an agent needs to run without touching the host: no runtime, no logind, its own
// folder, and no other owners.
type rig struct {
	cfg     config.Config
	next    config.Config // what a reload returns
	nextErr error
	manager *manager
	log     logtest.Book
	level   *slog.LevelVar
}

func newRig(t *testing.T) *rig {
	t.Helper()
	dir := folder(t)
	cfg := config.Default()
	cfg.Node.Name = nodeName
	cfg.Node.Enabled, cfg.Lease.Enabled, cfg.ImageGC.Enabled, cfg.ContainerGC.Enabled = config.On, config.On, config.On, config.On
	cfg.Shutdown.Enabled = config.Off
	cfg.Runtimes = config.Runtimes{List: []config.Runtime{{Type: "cri", Endpoint: filepath.Join(dir, "containerd.sock")}}}
	cfg.State.Directory, cfg.API.Socket, cfg.Metrics.Listen = filepath.Join(dir, "state"), filepath.Join(dir, "s"), ""
	return &rig{cfg: cfg, next: cfg, manager: newManager(t), level: new(slog.LevelVar)}
}

func (r *rig) options() Options {
	environment := map[string]string{"NOTIFY_SOCKET": r.manager.socket}
	return Options{
		Config:   config.Loaded{Config: r.cfg},
		Reload:   func() (config.Loaded, error) { return config.Loaded{Config: r.next}, r.nextErr },
		Version:  "1.2.3",
		Getenv:   func(name string) string { return environment[name] },
		Unsetenv: func(name string) error { delete(environment, name); return nil },
		Log:      slog.New(slog.NewTextHandler(&r.log, &slog.HandlerOptions{Level: r.level})),
		Level:    r.level,
	}
}

func (r *rig) build(t *testing.T) *Agent {
	t.Helper()
	a, err := New(r.options())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.close() }) // may be called twice; fails if the state cannot be stored
	return a
}

// run starts an agent. The caller sends the signal that ends it.
func (r *rig) run(t *testing.T) (signals chan<- os.Signal, ended <-chan error) {
	t.Helper()
	a, input, done := r.build(t), make(chan os.Signal, 1), make(chan error, 1)
	go func() { done <- a.Run(input) }()
	t.Cleanup(func() {
		select {
		case input <- syscall.SIGTERM:
		default:
		}
	})
	r.manager.expects(t, "READY=1")
	return input, done
}

func within(t *testing.T, what string, ended <-chan error) {
	t.Helper()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("%s: Run() = %v, want nil", what, err)
		}
	case <-time.After(bound):
		t.Fatalf("%s: the agent has not ended after %v", what, bound)
	}
}

func TestTheAgentRunsAnswersAndEnds(t *testing.T) {
	r := newRig(t)
	signals, ended := r.run(t)
	client := api.NewClient(r.cfg.API.Socket)
	var s api.Status
	for begin := time.Now(); ; {
		var err error
		if s, err = client.Status(t.Context()); err != nil {
			t.Fatal(err)
		}
		if s.Node != nil && s.Lease != nil && s.ControlPlane.Connected && ready(s.Node).Status == "False" {
			break
		}
		if time.Since(begin) > bound {
			t.Fatalf("status = %+v, want a node and a lease by now", s)
		}
	}
	if c := ready(s.Node); s.Node.Name != nodeName || c.Reason != "RuntimeDown" {
		t.Errorf("node = %s, %+v, want %s, not ready for its runtime is down", s.Node.Name, c, nodeName)
	}
	if s.Version != "1.2.3" || len(s.Owners) != len(owner.Jobs()) || len(s.Loops) != 17 || s.Shutdown.State.String() != "Disarmed" {
		t.Errorf("status = %+v, want all loops and owners", s)
	}
	if _, err := client.Pods(t.Context()); err == nil || !strings.Contains(err.Error(), "containerd.sock") {
		t.Errorf("Pods() = %v, want the runtime that does not answer named", err)
	}

	signals <- syscall.SIGHUP
	r.manager.expects(t, "RELOADING=1")
	r.manager.expects(t, "READY=1")
	if _, err := client.Status(t.Context()); err != nil {
		t.Errorf("Status() after a reload = %v, want an answer", err)
	}

	signals <- syscall.SIGTERM
	r.manager.expects(t, "STOPPING=1")
	within(t, "after SIGTERM", ended)
	if _, err := os.Lstat(r.cfg.API.Socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the API socket = %v, want it gone", err)
	}

	// The next agent loads the stored state.
	uid := s.Node.UID
	next := r.build(t)
	node, err := next.plane.Node(t.Context(), nodeName)
	if err != nil || node.UID != uid || uid == "" {
		t.Errorf("the Node of the next agent = %v, %v, want UID %s", node, err, uid)
	}
}

func TestASecondAgentIsRefused(t *testing.T) {
	r := newRig(t)
	r.build(t)
	if _, err := New(r.options()); err == nil || !strings.Contains(err.Error(), "in use by another hostler agent; run") {
		t.Errorf("New() beside an agent = %v, want it refused", err)
	}
	other := newRig(t)
	other.cfg.API.Socket = r.cfg.API.Socket
	if _, err := New(other.options()); err == nil || !strings.Contains(err.Error(), "another process serves") {
		t.Errorf("New() with the socket of another agent = %v, want it refused", err)
	}
}

func TestAnAgentThatCannotBeBuiltLeavesNothingBehind(t *testing.T) {
	for name, spoil := range map[string]func(*config.Config){
		"a socket that is in the way": func(c *config.Config) { c.API.Socket = "/proc/version" },
		"a name that is none":         func(c *config.Config) { c.Node.Name = "Not A Name" },
		"more reserved than there is": func(c *config.Config) { c.Node.Reserved.CPU = "1000000" },
		"an endpoint listed twice":    func(c *config.Config) { c.Runtimes.List = append(c.Runtimes.List, c.Runtimes.List...) },
		"phases that contradict": func(c *config.Config) {
			c.Shutdown.Enabled, c.Shutdown.GracePeriodCriticalPods = config.On, c.Shutdown.GracePeriod
		},
		"a lease that cannot be kept":  func(c *config.Config) { c.Lease.RenewInterval = c.Lease.Duration },
		"a collection without a pause": func(c *config.Config) { c.ImageGC.Interval = 0 },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			good := r.cfg
			spoil(&r.cfg)
			if a, err := New(r.options()); err == nil {
				_ = a.close()
				t.Fatal("New() = nil, want an error")
			}
			r.cfg = good
			r.build(t) // the state is not locked, and the socket is not in use
		})
	}
}

func TestTheWatchdogIsFedByProgressAlone(t *testing.T) {
	m := newManager(t)
	environment := map[string]string{"NOTIFY_SOCKET": m.socket, "WATCHDOG_USEC": "10000000"}
	var log logtest.Book
	synctest.Test(t, func(t *testing.T) {
		l := loop.New("lease", 12*time.Second, nil)
		n := notify.New(func(name string) string { return environment[name] }, func(string) error { return nil })
		ctx, cancel := context.WithCancel(t.Context())
		var done sync.WaitGroup
		l.Heartbeat(nil)
		done.Go(func() { loop.Set{l}.Feed(ctx, n.WatchdogInterval(), func() { _ = n.Watchdog() }, log.Logger()) })
		time.Sleep(time.Minute) // fed at 0, 5 and 10 s, and not after that
		l.Heartbeat(nil)
		time.Sleep(6 * time.Second) // fed once or twice
		cancel()
		done.Wait()
	})
	fed := 0
	for m.next(t, 10*time.Millisecond) == "WATCHDOG=1" {
		fed++
	}
	if fed < 4 || fed > 5 {
		t.Errorf("the watchdog was fed %d times, want 3 times before the loop got stuck and once or twice after", fed)
	}
	if log.Count("stopped watchdog notifications") != 1 || log.Count("no progress: lease") != 1 || log.Count("resumed watchdog notifications") != 1 {
		t.Errorf("log = %s, want one line that names the loop, and one that it is over", &log)
	}
}

// named returns the agent's loop with this name.
func named(t *testing.T, a *Agent, name string) *loop.Loop {
	t.Helper()
	i := slices.IndexFunc(a.loops, func(l *loop.Loop) bool { return l.Name() == name })
	if i < 0 {
		t.Fatalf("there is no loop %s", name)
	}
	return a.loops[i]
}

func TestMetricsReportTheCurrentState(t *testing.T) {
	a := newRig(t).build(t)
	a.owners.Refresh(t.Context())
	if err := a.reports.reporter.ReportShutdown(t.Context(), a.shutdown.guard.Status()); err != nil {
		t.Fatal(err)
	}
	named(t, a, "status").Heartbeat(errors.New("full"))
	a.metrics.Renewal(nil)
	a.metrics.Renewal(errors.New("gone"))
	a.metrics.RuntimeCall("podman", "ListImages", time.Second, errors.New("gone"))
	w := httptest.NewRecorder()
	a.serving.metrics.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	body, err := io.ReadAll(w.Result().Body)
	if err != nil || w.Code != http.StatusOK {
		t.Fatalf("GET /metrics = %d, %v", w.Code, err)
	}
	for _, want := range []string{
		`hostler_build_info{goversion="go`,
		`version="1.2.3"} 1`,
		`hostler_loop_healthy{loop="status"} 0`,
		`hostler_loop_healthy{loop="lease"} 1`,
		`hostler_loop_restarts_total{loop="lease"} 0`,
		`hostler_shutdown_state{state="Disarmed"} 1`,
		`hostler_shutdown_state{state="Armed"} 0`,
		`hostler_status_writes_total{result="success"} 1`,
		`hostler_lease_renewals_total{result="failure"} 1`,
		`hostler_lease_renewals_total{result="success"} 1`,
		`hostler_runtime_call_errors_total{method="ListImages",runtime="podman"} 1`,
		`hostler_gc_freed_bytes_total 0`,
		`hostler_events_dropped_total 0`,
		`hostler_reboots_total{expected="false"} 0`,
	} {
		if !strings.Contains(string(body), want) {
			t.Errorf("GET /metrics has no %s", want)
		}
	}
	for line := range strings.Lines(string(body)) {
		if name, _, _ := strings.Cut(line, " "); line[0] != '#' && !strings.HasPrefix(name, "hostler_") && !strings.HasPrefix(name, "go_") && !strings.HasPrefix(name, "process_") {
			t.Errorf("GET /metrics has %s, want hostler's own prefix", line)
		}
	}
}
