package cli_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/agent/cli"
	"hostler.io/hostler/agent/doctor"
	"hostler.io/hostler/agent/fleet"
	"hostler.io/hostler/agent/maintenance"
	"hostler.io/hostler/gc/runs"
	"hostler.io/hostler/internal/listen"
	"hostler.io/hostler/shutdown/plan"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// night is the current time in all golden screens.
var night = time.Date(2026, 11, 20, 3, 12, 0, 0, time.UTC)

func ago(d time.Duration) time.Time { return night.Add(-d) }

// backend returns fixed answers, with a field for each request.
type backend struct {
	status  api.Status
	pods    api.PodList
	images  api.ImageList
	plan    api.CollectPlan
	steps   []runs.Progress
	report  runs.Report
	history api.CollectHistory
	phases  api.ShutdownPlan
	drained maintenance.DrainReport
	doctor  doctor.Report
	config  api.Config
	drains  chan<- os.Signal // receives a signal with a drain, which then waits for its caller to disconnect
	member  bool             // the Node is registered
	fleet   fleet.Fleet
	hosts   []fleet.Member   // of the fleet, ordered by name
	err     error            // returned by every request
	hang    bool             // no answer until the caller has disconnected
	entered chan<- os.Signal // receives a signal with the first request
}

func (b *backend) answer(ctx context.Context) error {
	if b.entered != nil {
		b.entered <- os.Interrupt
		b.entered = nil
	}
	if b.hang {
		<-ctx.Done()
		return ctx.Err()
	}
	return b.err
}

func (b *backend) Status(ctx context.Context) (api.Status, error) { return b.status, b.answer(ctx) }
func (b *backend) Pods(ctx context.Context) (api.PodList, error)  { return b.pods, b.answer(ctx) }
func (b *backend) Images(ctx context.Context) (api.ImageList, error) {
	return b.images, b.answer(ctx)
}

func (b *backend) CollectPlan(ctx context.Context, req api.CollectRequest) (api.CollectPlan, error) {
	p := b.plan
	if req.Images && !req.Containers {
		p.Containers = nil
	}
	if req.Containers && !req.Images {
		p.Images = nil
	}
	return p, b.answer(ctx)
}

func (b *backend) Collect(ctx context.Context, _ api.CollectRequest, progress func(runs.Progress)) (runs.Report, error) {
	for _, s := range b.steps {
		progress(s)
	}
	return b.report, b.answer(ctx)
}

func (b *backend) CollectHistory(ctx context.Context) (api.CollectHistory, error) {
	return b.history, b.answer(ctx)
}

func (b *backend) ShutdownPlan(ctx context.Context) (api.ShutdownPlan, error) {
	return b.phases, b.answer(ctx)
}

func (b *backend) DrainPlan(ctx context.Context, req maintenance.DrainRequest) (maintenance.DrainPlan, error) {
	p, critical, bound := b.phases.Plan, []plan.PlannedPod{}, seconds(30)
	if !req.All {
		p, critical = plan.WithoutCritical(p)
		bound = seconds(20)
	}
	return maintenance.DrainPlan{Plan: p, Node: "rack3-node07.example.net", Critical: critical, Bound: bound}, b.answer(ctx)
}

func (b *backend) Drain(ctx context.Context, _ maintenance.DrainRequest, progress func(maintenance.DrainStep)) (maintenance.DrainReport, error) {
	for i, p := range b.drained.Pods {
		progress(maintenance.DrainStep{PodRecord: p, Done: i + 1, Total: len(b.drained.Pods)})
	}
	if b.drains != nil {
		b.drains <- os.Interrupt
		<-ctx.Done()
		return b.drained, ctx.Err()
	}
	return b.drained, b.answer(ctx)
}

func (b *backend) Leave(ctx context.Context) (maintenance.LeaveReport, error) {
	return maintenance.LeaveReport{Node: "rack3-node07.example.net", ControlPlane: "kubernetes", By: "alice", Changed: true}, b.answer(ctx)
}

func (b *backend) Return(ctx context.Context) (maintenance.LeaveReport, error) {
	r, err := b.Leave(ctx)
	r.Changed = !b.member
	return r, err
}

func (b *backend) Cordon(ctx context.Context, unschedulable bool) (maintenance.CordonReport, error) {
	return maintenance.CordonReport{Node: "rack3-node07.example.net", Changed: unschedulable, Cordon: maintenance.Cordon{Unschedulable: unschedulable, By: "alice", At: night}}, b.answer(ctx)
}

func (b *backend) Doctor(ctx context.Context) (doctor.Report, error) {
	return b.doctor, b.answer(ctx)
}

func (b *backend) Fleet(ctx context.Context, each func(fleet.Member) error) (fleet.Fleet, error) {
	for _, h := range b.hosts {
		if err := each(h); err != nil {
			return b.fleet, err
		}
	}
	return b.fleet, b.answer(ctx)
}

func (b *backend) Member(ctx context.Context, name string) (fleet.MemberOf, error) {
	for _, h := range b.hosts {
		if h.Node.Name == name {
			return fleet.MemberOf{Member: h, ControlPlane: b.fleet}, b.answer(ctx)
		}
	}
	return fleet.MemberOf{}, &api.Error{Message: "there is no node " + name, Hint: "did you mean another?"}
}

func (b *backend) Config(ctx context.Context) (api.Config, error) {
	return b.config, b.answer(ctx)
}

func (b *backend) Reload(ctx context.Context) (api.ReloadReport, error) {
	return api.ReloadReport{Changed: b.config.Differs}, b.answer(ctx)
}

func (b *backend) ContainerLog(ctx context.Context, _ api.LogRequest) ([]byte, error) {
	return nil, b.answer(ctx)
}

func (b *backend) Healthy() error { return b.err }

// serve serves the backend at a socket until the test ends. Close does not wait for requests: one
// that remains is found only as a leaked goroutine.
func serve(t testing.TB, b api.Backend) (socket string) {
	t.Helper()
	folder, err := os.MkdirTemp("", "cli") // short, because the path of a socket is limited to 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	socket = filepath.Join(folder, "s")
	serveAt(t, socket, b)
	return socket
}

// serveAt serves at a socket until the test ends or end is called.
func serveAt(t testing.TB, socket string, b api.Backend) (end func()) {
	t.Helper()
	l, err := listen.Socket(socket)
	if err != nil {
		t.Fatal(err)
	}
	server := api.NewServer(api.Routes(b, http.NotFoundHandler(), slog.New(slog.DiscardHandler)))
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	end = sync.OnceFunc(func() {
		_ = server.Close()
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("the fake agent ended with %v", err)
		}
	})
	t.Cleanup(end)
	return end
}

// answer has the output and the exit code of a command.
type answer struct {
	stdout, stderr string
	code           int
}

// hostler runs a command against the socket, in this process.
func hostler(socket string, args ...string) answer {
	return run(nil, map[string]string{"HOSTLER_SOCKET": socket}, args...)
}

// hostlerUntil is hostler with signals.
func hostlerUntil(signals <-chan os.Signal, socket string, args ...string) answer {
	return run(signals, map[string]string{"HOSTLER_SOCKET": socket}, args...)
}

func run(signals <-chan os.Signal, environment map[string]string, args ...string) answer {
	var stdout, stderr bytes.Buffer
	code := cli.Run(cli.Process{
		Args: args, Stdout: &stdout, Stderr: &stderr, Signals: signals, Version: "1.2.3", WatchInterval: watchInterval,
		Getenv: func(name string) string { return environment[name] },
		Now:    func() time.Time { return night },
	})
	return answer{stdout.String(), stderr.String(), code}
}

// golden compares got with a file in testdata, or writes it with -update.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v; run the test with -update to write it", err)
	}
	if got != string(want) {
		t.Errorf("%s =\n%s\nwant\n%s\nrun the test with -update if this is how it should be", name, got, want)
	}
}
