package discovery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"hostler.io/hostler/internal/trust/trusttest"
	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/cri"
	"hostler.io/hostler/runtime/local"
	"hostler.io/hostler/runtime/runtimetest"
)

// Two containerds on one host are a containerd and a k3s, or two configured ones.
func TestTwoRuntimesOfOneKindAreDistinguished(t *testing.T) {
	first, second := newContainerd(t), newContainerd(t)
	r := opened(t, first.socket, second.socket)
	if err := r.Refresh(t.Context()); err != nil {
		t.Fatalf("Refresh() = %v", err)
	}
	images, err := r.set.Images(t.Context())
	if err != nil || len(images) != 2 {
		t.Fatalf("Images() = %v, %v, want one of each runtime", images, err)
	}
	named := r.Named()
	if len(named) != 2 || named[0].Name != images[0].Runtime || named[1].Name != images[1].Runtime || named[0].Name == named[1].Name {
		t.Errorf("Named() = %+v, want the names that images carry: %s, %s", named, images[0].Runtime, images[1].Runtime)
	}
}

func TestOneSocketIsOneRuntime(t *testing.T) {
	s := newContainerd(t)
	link := filepath.Join(folder(t), "k3s.sock")
	if err := os.Symlink(s.socket, link); err != nil {
		t.Fatal(err)
	}
	candidates := []local.Candidate{{Type: cri.Type, Name: "containerd", Path: s.socket}, {Type: cri.Type, Name: "k3s", Path: link}}
	r := opened(t)
	r.candidates = candidates
	for range 2 {
		if err := r.Refresh(t.Context()); err != nil {
			t.Fatalf("Refresh() = %v", err)
		}
		if found := r.Named(); len(found) != 1 || found[0].Name != "containerd" {
			t.Errorf("Named() = %+v, want containerd alone", found)
		}
	}
	twice := Options{Configured: []local.Candidate{{Type: cri.Type, Path: s.socket}, {Type: cri.Type, Path: link}}, Log: slog.New(slog.DiscardHandler)}
	if _, err := New(twice); err == nil || !strings.Contains(err.Error(), link) {
		t.Errorf("New() of two paths to one socket = %v, want an error that names the second", err)
	}
}

// Before unlisted pods count as gone, all runtimes must have been queried.
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
	r := opened(t, configured.socket)
	r.usual = []local.Candidate{{Type: cri.Type, Name: "containerd", Path: configured.socket}, {Type: cri.Type, Name: "cri-o", Path: filepath.Join(folder(t), "none.sock")}}
	if why := r.Unseen(); why != "" {
		t.Errorf("Unseen() = %q, want nothing where the configured runtime is the only one", why)
	}
	r.usual = append(r.usual, local.Candidate{Type: cri.Type, Name: "k3s", Path: other.socket})
	if why := r.Unseen(); !strings.Contains(why, other.socket) {
		t.Errorf("Unseen() = %q, want the runtime that the configuration leaves out", why)
	}

	r = opened(t)
	r.candidates = []local.Candidate{{Type: cri.Type, Name: "containerd", Path: configured.socket}}
	if why := r.Unseen(); why == "" {
		t.Errorf("Unseen() = nothing before the first scan")
	}
	r.discover(t.Context())
	if why := r.Unseen(); why != "" {
		t.Errorf("Unseen() = %q, want nothing where every runtime answers", why)
	}
	r.candidates = append(r.candidates, local.Candidate{Type: cri.Type, Name: "cri-o", Path: dead})
	r.discover(t.Context())
	if why := r.Unseen(); !strings.Contains(why, dead) {
		t.Errorf("Unseen() = %q, want the runtime that does not answer", why)
	}

	// A runtime that was stopped before the agent started has no socket, but its pods still run.
	r = opened(t)
	r.candidates = []local.Candidate{{Type: cri.Type, Name: "containerd", Path: configured.socket}}
	r.discover(t.Context())
	stopped := filepath.Join(folder(t), "stopped.sock")
	r.usual = []local.Candidate{{Type: cri.Type, Name: "containerd", Path: configured.socket}, {Type: cri.Type, Name: "k3s", Path: stopped}}
	if why := r.Unseen(); why != "" {
		t.Errorf("Unseen() = %q, want nothing where nothing is left of a runtime", why)
	}
	id := strings.Repeat("c0ffee01", 8)
	r.proc = trusttest.Proc(t, trusttest.Process{PID: 71, Cgroup: "/kubepods/" + id})
	task := filepath.Join(filepath.Dir(stopped), "io.containerd.runtime.v2.task", "k8s.io", id)
	if err := os.MkdirAll(task, 0o700); err != nil {
		t.Fatal(err)
	}
	if why := r.Unseen(); why != "" {
		t.Errorf("Unseen() = %q, want nothing of a container that has ended", why)
	}
	if err := os.WriteFile(filepath.Join(task, "init.pid"), []byte("71"), 0o600); err != nil {
		t.Fatal(err)
	}
	if why := r.Unseen(); !strings.Contains(why, stopped) {
		t.Errorf("Unseen() = %q, want the runtime whose containers run without it", why)
	}
	// Its pods are not protected, which must be reported.
	r.discover(t.Context())
	if list := r.Unreachable(); len(list) != 1 || list[0].Name != "k3s" || list[0].Ready || !strings.Contains(list[0].Message, stopped) {
		t.Errorf("Unreachable() = %+v, want the runtime that is not there", list)
	}
	if failed := r.OutOfReach(); !strings.HasPrefix(failed, "k3s: ") || !strings.Contains(failed, stopped) {
		t.Errorf("OutOfReach() = %q, want the runtime that is not there", failed)
	}
	// The guard must not assume that they have ended, either.
	var failed *runtime.SetError
	if _, err := r.Guarded().Pods(t.Context()); !errors.As(err, &failed) || len(failed.Failed) != 1 || failed.Failed[0].Runtime != "k3s" || !errors.Is(err, runtime.ErrUnavailable) {
		t.Errorf("Pods() = %v, want an error that names the runtime that is not there", err)
	}
}

// A guard that must drain right after boot must not assume that nothing runs: containerd reports
// that it has started before it has loaded its pods.
func TestTheGuardWaitsForARuntimeThatIsStarting(t *testing.T) {
	s := newContainerd(t)
	s.sandboxes = []*criapi.PodSandbox{{Id: "web", Metadata: &criapi.PodSandboxMetadata{Name: "web", Namespace: "default"}, State: criapi.PodSandboxState_SANDBOX_READY}}
	r := opened(t)
	dir := folder(t)
	left := filepath.Join(dir, "left.sock")
	listener, err := net.Listen("unix", left)
	if err != nil {
		t.Fatal(err)
	}
	listener.(*net.UnixListener).SetUnlinkOnClose(false)
	listener.Close()
	r.candidates = []local.Candidate{{Type: cri.Type, Name: "containerd", Path: s.socket}, {Type: cri.Type, Name: "cri-o", Path: left}}

	s.starts.Store(true)
	for _, when := range []string{"before anybody has looked", "after that"} {
		if pods, err := r.Guarded().Pods(t.Context()); !errors.Is(err, runtime.ErrUnavailable) || !strings.Contains(err.Error(), s.socket) || strings.Contains(err.Error(), left) {
			t.Errorf("Pods() %s = %v, %v, want an error that names %s alone", when, pods, err, s.socket)
		}
	}
	s.starts.Store(false)
	if pods, err := r.Guarded().Pods(t.Context()); err != nil || len(pods) != 1 || pods[0].Name != "web" {
		t.Errorf("Pods() of a runtime that has started = %v, %v, want web", pods, err)
	}
}

// An agent that was restarted while containerd is slow does not know yet whether the host has a runtime.
func TestARuntimeThatIsStartingIsNotTakenForNone(t *testing.T) {
	s := newContainerd(t)
	r := opened(t)
	r.candidates = []local.Candidate{{Type: cri.Type, Name: "containerd", Path: s.socket}}
	for _, step := range []struct {
		starts bool
		states int
		asked  bool
	}{{true, 0, false}, {false, 1, true}, {true, 1, true}} {
		s.starts.Store(step.starts)
		_ = r.Refresh(t.Context())
		if states, asked := r.Current(); len(states) != step.states || asked != step.asked {
			t.Errorf("Current() = %+v, %t, want %d runtimes, all checked: %t", states, asked, step.states, step.asked)
		}
	}
	r = opened(t)
	r.candidates = []local.Candidate{{Type: cri.Type, Name: "containerd", Path: s.socket}}
	r.started = time.Now().Add(-startPatience)
	_ = r.Refresh(t.Context())
	if states, asked := r.Current(); len(states) > 0 || !asked {
		t.Errorf("Current() after %v = %+v, %t, want that the host has no runtime", startPatience, states, asked)
	}
}

// A drain bounds a list to one second. If a list waited for a search at a socket that never
// answers, even the pods of other runtimes would come too late.
func TestAListOfPodsDoesNotWaitForASearch(t *testing.T) {
	s := newContainerd(t)
	s.sandboxes = []*criapi.PodSandbox{{Id: "web", Metadata: &criapi.PodSandboxMetadata{Name: "web", Namespace: "default"}, State: criapi.PodSandboxState_SANDBOX_READY}}
	r := opened(t)
	hung := filepath.Join(folder(t), "hung.sock")
	r.candidates = []local.Candidate{{Type: cri.Type, Name: "containerd", Path: s.socket}}
	if err := r.Refresh(t.Context()); err != nil {
		t.Fatalf("Refresh() = %v", err)
	}
	listener, err := net.Listen("unix", hung)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	r.candidates = append(r.candidates, local.Candidate{Type: cri.Type, Name: "cri-o", Path: hung})
	r.results.unresponsive = []string{hung}

	searching, stop := context.WithCancel(t.Context())
	searched := make(chan struct{})
	go func() {
		defer close(searched)
		r.discover(searching)
	}()
	defer func() { stop(); <-searched }()
	conn, err := listener.Accept() // the search is in progress
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()

	var pods []runtime.Pod
	for limit := 200 * time.Millisecond; len(pods) == 0 && limit < time.Minute; limit *= 2 { // a busy machine lists too late
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		pods, err = r.Guarded().Pods(ctx)
		cancel()
	}
	select {
	case <-searched:
		t.Error("Pods() waited for the search to end, want no longer than its context allows")
	default:
	}
	if !errors.Is(err, runtime.ErrUnavailable) || len(pods) != 1 || pods[0].Name != "web" {
		t.Errorf("Pods() = %v, %v, want web, and an error that reports the other socket", pods, err)
	}
}

// A runtime that hangs does not answer until a call times out.
func TestANewRuntimeIsKnownDespiteOneThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const bound = 10 * time.Second
		r := opened(t)
		add := func(name string) *runtimetest.Fake {
			t.Helper()
			fake := runtimetest.NewFake(runtimetest.Options{Name: name, CallTimeout: bound})
			if err := r.set.Add(fake); err != nil {
				t.Fatal(err)
			}
			return fake
		}
		ready := func() string {
			var names []string
			states, _ := r.Current()
			for _, s := range states {
				names = append(names, fmt.Sprint(s.Name, " ", s.Ready))
			}
			return strings.Join(names, ", ")
		}
		check := func(wantErr bool, within time.Duration, want string) {
			t.Helper()
			began := time.Now()
			err := r.Refresh(t.Context())
			if took := time.Since(began); (err != nil) != wantErr || took > within || ready() != want {
				t.Errorf("Refresh() = %v after %v, and finds %q; want an error: %t, within %v, and %q", err, took, ready(), wantErr, within, want)
			}
		}
		old := add("old")
		check(false, 0, "old true")
		hang := old.Inject(runtimetest.Info, runtimetest.Fault{Hang: true})
		add("new")
		check(false, patience, "old true, new true") // it may just be slow
		time.Sleep(bound)
		check(true, patience, "old false, new true")
		add("newer")
		check(true, patience, "old false, new true, newer true")
		hang.Release()
		time.Sleep(bound)
		check(false, 0, "old true, new true, newer true")
		if n := len(old.Calls(runtimetest.Info)); n > 5 {
			t.Errorf("one that hangs was asked %d times, want one call at a time", n)
		}
		dead := add("dead")
		dead.Inject(runtimetest.Info, runtimetest.Fault{Hang: true})
		check(true, bound, "old true, new true, newer true, dead false") // its health is not known yet
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
}

// counted is a listener that counts connections.
type counted struct {
	net.Listener
	came *atomic.Int32
}

func (l counted) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err == nil {
		l.came.Add(1)
	}
	return conn, err
}

func TestASearchSkipsSocketsThatAreNoRuntimes(t *testing.T) {
	path := filepath.Join(folder(t), "containerd.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	var came atomic.Int32
	server := grpc.NewServer() // like a containerd without CRI
	go func() { _ = server.Serve(counted{l, &came}) }()
	t.Cleanup(server.Stop)
	r := opened(t)
	r.candidates = []local.Candidate{{Type: cri.Type, Name: "containerd", Path: path}}
	for i, check := range []struct {
		by   func()
		asks bool
	}{
		{func() { r.discover(t.Context()) }, true},
		{func() { r.Search(t.Context()) }, false},
		{func() { r.Search(t.Context()) }, false},
		{func() { r.discover(t.Context()) }, true},
	} {
		before := came.Load()
		check.by()
		if asked := came.Load() > before; asked != check.asks || len(r.Dead()) != 1 || !errors.Is(r.Dead()[0].Err, runtime.ErrUnsupported) {
			t.Errorf("scan %d called it: %t, want %t, and Dead() = %v", i+1, asked, check.asks, r.Dead())
		}
	}
}
