package api_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/agent/doctor"
	"hostler.io/hostler/agent/fleet"
	"hostler.io/hostler/agent/maintenance"
	"hostler.io/hostler/agent/reboot"
	"hostler.io/hostler/gc"
	"hostler.io/hostler/gc/history"
	"hostler.io/hostler/gc/runs"
	"hostler.io/hostler/internal/caller"
	"hostler.io/hostler/internal/listen"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/shutdown/plan"
)

// backend returns fixed answers or its error, and records the requests.
type backend struct {
	err     error
	healthy error
	steps   []runs.Progress
	during  func(ctx context.Context) // called in Collect and Drain, after the steps
	pods    []journal.PodRecord       // results of the pods of a drain
	drained maintenance.DrainReport

	mu      sync.Mutex // guards the fields below
	asked   []api.CollectRequest
	drains  []maintenance.DrainRequest
	cordons []bool
	logs    []api.LogRequest
}

func (b *backend) ContainerLog(_ context.Context, req api.LogRequest) ([]byte, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.logs = append(b.logs, req)
	return []byte("ready\n"), b.err
}

func (b *backend) Status(context.Context) (api.Status, error) {
	return api.Status{Version: "1.2.3"}, b.err
}

func (b *backend) Pods(context.Context) (api.PodList, error) {
	return api.PodList{Pods: []api.Pod{{Name: "web"}}, Message: "half"}, b.err
}

func (b *backend) Images(context.Context) (api.ImageList, error) {
	return api.ImageList{Images: []api.Image{{ImageDecision: gc.ImageDecision{ID: "i"}}}}, b.err
}

func (b *backend) CollectPlan(_ context.Context, req api.CollectRequest) (api.CollectPlan, error) {
	b.ask(req)
	return api.CollectPlan{Message: "planned"}, b.err
}

func (b *backend) Collect(ctx context.Context, req api.CollectRequest, progress func(runs.Progress)) (runs.Report, error) {
	b.ask(req)
	for _, s := range b.steps {
		progress(s)
	}
	if b.during != nil {
		b.during(ctx)
	}
	return runs.Report{Ended: "all done"}, b.err
}

func (b *backend) CollectHistory(context.Context) (api.CollectHistory, error) {
	return api.CollectHistory{Runs: []history.Run{{Kind: history.Images}}}, b.err
}

func (b *backend) ShutdownPlan(context.Context) (api.ShutdownPlan, error) {
	return api.ShutdownPlan{Plan: plan.Plan{Phases: []plan.PlannedPhase{{Name: "regular"}}}}, b.err
}

func (b *backend) DrainPlan(context.Context, maintenance.DrainRequest) (maintenance.DrainPlan, error) {
	return maintenance.DrainPlan{Node: "planned"}, b.err
}

func (b *backend) Drain(ctx context.Context, req maintenance.DrainRequest, progress func(maintenance.DrainStep)) (maintenance.DrainReport, error) {
	b.mu.Lock()
	b.drains = append(b.drains, req)
	b.mu.Unlock()
	for _, p := range b.pods {
		progress(maintenance.DrainStep{PodRecord: p, Total: len(b.pods)})
	}
	if b.during != nil {
		b.during(ctx)
	}
	return b.drained, b.err
}

func (b *backend) Leave(ctx context.Context) (maintenance.LeaveReport, error) {
	return maintenance.LeaveReport{Node: "host", ControlPlane: "fake", By: caller.Name(ctx), Changed: true}, b.err
}

func (b *backend) Return(ctx context.Context) (maintenance.LeaveReport, error) { return b.Leave(ctx) }

func (b *backend) Reboot(ctx context.Context, ask reboot.Ask) (reboot.Report, error) {
	return reboot.Report{Request: &reboot.Request{Reason: ask.Reason, By: caller.Name(ctx), Now: ask.Now}}, b.err
}

func (b *backend) CancelReboot(ctx context.Context) (reboot.Report, error) {
	return reboot.Report{Request: &reboot.Request{Cancelled: caller.Name(ctx)}}, b.err
}

func (b *backend) RebootPlan(context.Context) (api.RebootPlan, error) {
	return api.RebootPlan{Node: "host"}, b.err
}

func (b *backend) Cordon(ctx context.Context, unschedulable bool) (maintenance.CordonReport, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cordons = append(b.cordons, unschedulable)
	return maintenance.CordonReport{Node: "host", Cordon: maintenance.Cordon{Unschedulable: unschedulable, By: caller.Name(ctx)}}, b.err
}

// Fleet returns a host, and then either an error or another host.
func (b *backend) Fleet(_ context.Context, each func(fleet.Member) error) (fleet.Fleet, error) {
	for _, name := range []string{"a", "b"} {
		if err := each(fleet.Member{Node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}}); err != nil {
			return fleet.Fleet{}, err
		}
		if b.err != nil {
			break
		}
	}
	return fleet.Fleet{Type: "fake", Node: "a"}, b.err
}

func (b *backend) Member(_ context.Context, name string) (fleet.MemberOf, error) {
	return fleet.MemberOf{Member: fleet.Member{Node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}}}, b.err
}

func (b *backend) Doctor(context.Context) (doctor.Report, error) {
	return doctor.Report{Checks: []doctor.Check{{Name: "dbus", Status: doctor.OK}}}, b.err
}

func (b *backend) Config(context.Context) (api.Config, error) {
	return api.Config{YAML: "node: {}\n", Configuration: doctor.Configuration{Differs: []string{"node.name"}}}, b.err
}

func (b *backend) Reload(context.Context) (api.ReloadReport, error) {
	return api.ReloadReport{Changed: []string{"log.level"}}, b.err
}

func (b *backend) Healthy() error { return b.healthy }

func (b *backend) ask(req api.CollectRequest) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked = append(b.asked, req)
}

func (b *backend) requests() []api.CollectRequest {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]api.CollectRequest(nil), b.asked...)
}

func routes(b *backend) http.Handler {
	return api.Routes(b, metrics(), slog.New(slog.DiscardHandler))
}

func metrics() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hostler_up 1\n") })
}

// folder has a short path, because the path of a socket is limited to 107 bytes.
func folder(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "api")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// serve serves the handler at a socket until the test ends.
func serve(t testing.TB, h http.Handler) (socket string, server *http.Server) {
	t.Helper()
	socket = filepath.Join(folder(t), "s")
	l, err := listen.Socket(socket)
	if err != nil {
		t.Fatal(err)
	}
	server = api.NewServer(h)
	done := make(chan error, 1)
	go func() { done <- server.Serve(listen.Users(l, slog.New(slog.DiscardHandler))) }()
	t.Cleanup(func() {
		_ = server.Close()
		if err := <-done; !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
			t.Errorf("Serve() = %v, want that it was closed", err)
		}
	})
	return socket, server
}
