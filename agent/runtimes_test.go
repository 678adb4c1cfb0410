package agent

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"hostler.io/hostler/agent/config"
	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/cri"
)

// Two containerds on one host are a containerd and a k3s, or two configured ones.
func TestTwoRuntimesOfOneKindAreToldApart(t *testing.T) {
	first, second := newContainerd(t), newContainerd(t)
	a := newAgent(t, first.socket, second.socket)
	if err := a.runtimes.look(t.Context()); err != nil {
		t.Fatalf("look() = %v", err)
	}
	images, err := a.runtimes.set.Images(t.Context())
	if err != nil || len(images) != 2 {
		t.Fatalf("Images() = %v, %v, want one of each runtime", images, err)
	}
	report := a.runtimes.report()
	if len(report) != 2 || report[0].Name != images[0].Runtime || report[1].Name != images[1].Runtime || report[0].Name == report[1].Name {
		t.Errorf("report() = %+v, want the names that images carry: %s, %s", report, images[0].Runtime, images[1].Runtime)
	}
	response := httptest.NewRecorder()
	a.metrics.handler().ServeHTTP(response, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if body := response.Body.String(); response.Code != http.StatusOK || strings.Count(body, "\nhostler_runtime_ready{") != 2 {
		t.Errorf("GET /metrics = %d with %d runtimes ready, want 200 with 2: %.300s", response.Code, strings.Count(body, "\nhostler_runtime_ready{"), body)
	}
}

func TestOneSocketIsOneRuntime(t *testing.T) {
	s := newContainerd(t)
	link := filepath.Join(folder(t), "k3s.sock")
	if err := os.Symlink(s.socket, link); err != nil {
		t.Fatal(err)
	}
	candidates := []cri.Candidate{{Name: "containerd", Path: s.socket}, {Name: "k3s", Path: link}}
	a := newAgent(t)
	a.runtimes.candidates = candidates
	for range 2 {
		if err := a.runtimes.look(t.Context()); err != nil {
			t.Fatalf("look() = %v", err)
		}
		if found := a.runtimes.report(); len(found) != 1 || found[0].Name != "containerd" {
			t.Errorf("report() = %+v, want containerd alone", found)
		}
	}
	list := config.Runtimes{List: []config.Runtime{{Type: "cri", Endpoint: s.socket}, {Type: "cri", Endpoint: link}}}
	if _, err := newRuntimes(list, a.metrics.runtimeCall, a.log); err == nil || !strings.Contains(err.Error(), link) {
		t.Errorf("newRuntimes() of two paths to one socket = %v, want an error that names the second", err)
	}
}

// A guard that is asked to drain in the first moments of a boot must not believe
// that nothing runs: containerd says that it is up before it knows its pods.
// Whoever takes what no runtime lists for gone has to know that all were asked.
func TestPodsMayBeUnseen(t *testing.T) {
	configured, other := newContainerd(t), newContainerd(t)
	dead := filepath.Join(folder(t), "crio.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: dead})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	a := newAgent(t, configured.socket)
	a.runtimes.usual = []cri.Candidate{{Name: "containerd", Path: configured.socket}, {Name: "cri-o", Path: filepath.Join(folder(t), "none.sock")}}
	if why := a.runtimes.unseen(); why != "" {
		t.Errorf("unseen() = %q, want nothing where the configured runtime is the only one", why)
	}
	a.runtimes.usual = append(a.runtimes.usual, cri.Candidate{Name: "k3s", Path: other.socket})
	if why := a.runtimes.unseen(); !strings.Contains(why, other.socket) {
		t.Errorf("unseen() = %q, want the runtime that the configuration leaves out", why)
	}

	a = newAgent(t)
	a.runtimes.candidates = []cri.Candidate{{Name: "containerd", Path: configured.socket}}
	if why := a.runtimes.unseen(); why == "" {
		t.Errorf("unseen() = nothing before runtimes were looked for")
	}
	a.runtimes.discover(t.Context())
	if why := a.runtimes.unseen(); why != "" {
		t.Errorf("unseen() = %q, want nothing where every runtime answers", why)
	}
	a.runtimes.candidates = append(a.runtimes.candidates, cri.Candidate{Name: "cri-o", Path: dead})
	a.runtimes.discover(t.Context())
	if why := a.runtimes.unseen(); !strings.Contains(why, dead) {
		t.Errorf("unseen() = %q, want the runtime that does not answer", why)
	}
}

func TestTheGuardWaitsForARuntimeThatIsStarting(t *testing.T) {
	s := newContainerd(t)
	s.sandboxes = []*criapi.PodSandbox{{Id: "web", Metadata: &criapi.PodSandboxMetadata{Name: "web", Namespace: "default"}, State: criapi.PodSandboxState_SANDBOX_READY}}
	a := newAgent(t)
	dir := folder(t)
	left := filepath.Join(dir, "left.sock")
	listener, err := net.Listen("unix", left)
	if err != nil {
		t.Fatal(err)
	}
	listener.(*net.UnixListener).SetUnlinkOnClose(false)
	listener.Close()
	a.runtimes.candidates = []cri.Candidate{{Name: "containerd", Path: s.socket}, {Name: "cri-o", Path: left}}

	s.starts.Store(true)
	for _, when := range []string{"before anybody has looked", "after that"} {
		if pods, err := a.runtimes.guarded().Pods(t.Context()); !errors.Is(err, runtime.ErrUnavailable) || !strings.Contains(err.Error(), s.socket) || strings.Contains(err.Error(), left) {
			t.Errorf("Pods() %s = %v, %v, want an error that names %s alone", when, pods, err, s.socket)
		}
	}
	s.starts.Store(false)
	if pods, err := a.runtimes.guarded().Pods(t.Context()); err != nil || len(pods) != 1 || pods[0].Name != "web" {
		t.Errorf("Pods() of a runtime that has started = %v, %v, want web", pods, err)
	}
}

// A drain gives a list a second. One that waited for a search at a socket that
// never answers would come too late, with the pods of those that do.
func TestAListOfPodsDoesNotWaitForASearch(t *testing.T) {
	s := newContainerd(t)
	s.sandboxes = []*criapi.PodSandbox{{Id: "web", Metadata: &criapi.PodSandboxMetadata{Name: "web", Namespace: "default"}, State: criapi.PodSandboxState_SANDBOX_READY}}
	a := newAgent(t)
	hung := filepath.Join(folder(t), "hung.sock")
	a.runtimes.candidates = []cri.Candidate{{Name: "containerd", Path: s.socket}}
	if err := a.runtimes.look(t.Context()); err != nil {
		t.Fatalf("look() = %v", err)
	}
	listener, err := net.Listen("unix", hung)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	a.runtimes.candidates = append(a.runtimes.candidates, cri.Candidate{Name: "cri-o", Path: hung})
	a.runtimes.silent = []string{hung}

	searching, stop := context.WithCancel(t.Context())
	searched := make(chan struct{})
	go func() {
		defer close(searched)
		a.runtimes.discover(searching)
	}()
	defer func() { stop(); <-searched }()
	conn, err := listener.Accept() // the search is under way
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()

	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	pods, err := a.runtimes.guarded().Pods(ctx)
	select {
	case <-searched:
		t.Error("Pods() waited for the search to end, want no longer than its context allows")
	default:
	}
	if !errors.Is(err, runtime.ErrUnavailable) || len(pods) != 1 || pods[0].Name != "web" {
		t.Errorf("Pods() = %v, %v, want web, and an error that tells of the other socket", pods, err)
	}
}

// What the next boot tells after a power cut is what was listed last.
func TestAChangeOfContainersHasThePodsListedAgain(t *testing.T) {
	a := newAgent(t)
	for event, want := range map[runtime.EventType]bool{
		runtime.ImageAdded: false, runtime.ImageRemoved: false,
		runtime.ContainerStarted: true, runtime.ContainerExited: true, runtime.ContainerRemoved: true, runtime.Changed: true,
	} {
		a.notice(runtime.Event{Runtime: "containerd", Type: event})
		if got := a.podsChanged.Swap(false); got != want {
			t.Errorf("notice() of event %v has pods listed again = %t, want %t", event, got, want)
		}
	}
}
