package orphans_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/procfs"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/orphans"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// errGone is the error of a runtime whose socket nobody serves.
var errGone = fmt.Errorf("dial: %w", runtime.ErrUnavailable)

// host has two runtimes: k3s, which stops, and docker, which stays.
type host struct {
	t      *testing.T
	gone   bool // k3s does not answer
	lost   bool // k3s is not in the set any more
	slow   bool // k3s answers too late
	broken error
	stops  func() error // result of a stop that is in progress when k3s stops
	pods   []runtime.Pod
	docker []runtime.Pod
	asked  []string // calls to the runtimes
	root   string
	state  string // folder of k3s's containerd
	in     *orphans.Stopper
}

func newHost(t *testing.T) *host {
	t.Helper()
	h := &host{t: t, root: filepath.Join(t.TempDir(), "k8s.io"), state: t.TempDir()}
	must(t, os.Mkdir(h.root, 0o700))
	var err error
	h.in, err = orphans.New(orphans.Options{
		Runtime: h, Root: h.root, Log: slog.New(slog.DiscardHandler),
		Member: func(name string) bool { return name == "docker" || !h.lost },
		StopSignal: func(_ context.Context, runtime, image string) (string, error) {
			if h.gone {
				return "", errGone
			}
			return strings.TrimPrefix(image, "image-"), nil
		},
	})
	must(t, err)
	return h
}

func (h *host) Pods(context.Context) ([]runtime.Pod, error) {
	failed := func(name string, err error) error {
		return &runtime.SetError{Failed: []runtime.MemberError{{Runtime: name, Err: err}}}
	}
	switch {
	case h.broken != nil:
		return nil, errors.Join(&runtime.SetError{Failed: []runtime.MemberError{{Runtime: "k3s", Err: errGone}, {Runtime: "docker", Err: h.broken}}}, h.broken)
	case h.lost:
		return h.docker, nil
	case h.gone:
		return h.docker, failed("k3s", errGone)
	case h.slow:
		return h.docker, failed("k3s", fmt.Errorf("%w: %w", runtime.ErrUnavailable, context.DeadlineExceeded))
	}
	return append(h.docker, h.pods...), nil
}

func (h *host) StopContainer(_ context.Context, c runtime.Container, _ time.Duration) error {
	h.asked = append(h.asked, c.ID)
	if h.stops != nil {
		return h.stops()
	}
	if h.gone && c.Runtime != "docker" {
		return errGone
	}
	return nil
}

func (h *host) StopPod(_ context.Context, p runtime.Pod) error {
	h.asked = append(h.asked, p.ID)
	if h.gone && p.Runtime != "docker" {
		return errGone
	}
	return nil
}

// process is the first process of a container, which ends only by a signal.
type process struct {
	*exec.Cmd
	ended chan error
}

// runs adds a container with a process to runc's state, like containerd's shim.
func (h *host) runs(id string, annotations ...string) process {
	h.t.Helper()
	p := process{exec.Command("sleep", "86400"), make(chan error, 1)}
	must(h.t, p.Start())
	go func() { p.ended <- p.Wait() }()
	h.t.Cleanup(func() { _ = p.Process.Kill() })
	proc, err := procfs.NewProc(p.Process.Pid)
	must(h.t, err)
	stat, err := proc.Stat()
	must(h.t, err)
	kind := "io.kubernetes.cri.container-type=container"
	if len(annotations) == 0 {
		kind = "io.kubernetes.cri.container-type=sandbox"
	}
	labels := `"` + strings.Join(append(annotations, kind, "bundle="+filepath.Join(h.state, "io.containerd.runtime.v2.task/k8s.io", id)), `","`) + `"`
	must(h.t, os.Mkdir(filepath.Join(h.root, id), 0o700))
	must(h.t, os.WriteFile(filepath.Join(h.root, id, "state.json"), fmt.Appendf(nil,
		`{"id":%q,"init_process_pid":%d,"init_process_start":%d,"created":"2026-11-20T12:00:00Z","config":{"labels":[%s],"namespaces":[{"type":"NEWPID","path":""}]}}`,
		id, p.Process.Pid, stat.Starttime, labels), 0o600))
	return p
}

// end waits for the end of a process, and returns how it ended.
func (p process) end(t *testing.T) string {
	t.Helper()
	select {
	case err := <-p.ended:
		return fmt.Sprint(err)
	case <-time.After(5 * time.Minute):
		t.Fatal("the process has not ended")
		return ""
	}
}

// pod adds a pod of k3s with a container, both running.
func (h *host) pod(name, image string) (sandbox, container process) {
	h.t.Helper()
	sandbox = h.runs(name)
	container = h.runs(name+"-c", "io.kubernetes.cri.sandbox-id="+name)
	h.pods = append(h.pods, runtime.Pod{
		Runtime: "k3s", ID: name, Name: name, Ready: true, Sandbox: true, Labels: map[string]string{"hostler.io/priority": "7"},
		Containers: []runtime.Container{{Runtime: "k3s", ID: name + "-c", PodID: name, Name: "main", ImageID: image, State: runtime.Running}},
	})
	return sandbox, container
}

// stopK3s adopts k3s and then stops it.
func (h *host) stopK3s() {
	pods, err := h.in.Pods(h.t.Context())
	must(h.t, err)
	h.in.Adopt(h.t.Context(), pods, nil, nil)
	h.gone = true
}

// seen returns the listed pods in one line.
func (h *host) seen() string {
	h.t.Helper()
	pods, err := h.in.Pods(h.t.Context())
	must(h.t, err)
	var list []string
	for _, p := range pods {
		text := fmt.Sprintf("%s/%s/%s ready=%t priority=%s:", p.Runtime, p.Namespace, p.Name, p.Ready, p.Labels["hostler.io/priority"])
		for _, c := range p.Containers {
			text += fmt.Sprintf(" %s=%v", c.Name, c.State)
		}
		list = append(list, text)
	}
	return strings.Join(list, "; ")
}

func TestARuntimeThatAnswersIsUsed(t *testing.T) {
	h := newHost(t)
	_, c := h.pod("web", "image-")
	pods, err := h.in.Pods(t.Context())
	must(t, err)
	h.in.Adopt(t.Context(), pods, nil, nil)
	must(t, h.in.StopContainer(t.Context(), pods[0].Containers[0], time.Minute))
	must(t, h.in.StopPod(t.Context(), pods[0]))
	if got := strings.Join(h.asked, " "); got != "web-c web" {
		t.Errorf("the runtime received stop requests for %q, want web-c and web", got)
	}
	must(t, c.Process.Kill())
	if got := c.end(t); got != "signal: killed" {
		t.Errorf("the container ended with %q, want that the test itself killed it", got)
	}
}

func TestAFailingRuntimeIsNotReplacedBeforeAdopt(t *testing.T) {
	h := newHost(t)
	h.pod("web", "image-")
	h.gone = true
	if pods, err := h.in.Pods(t.Context()); !errors.Is(err, runtime.ErrUnavailable) || len(pods) != 0 {
		t.Errorf("Pods() = %v, %v, want the runtime's own error", pods, err)
	}
	if err := h.in.StopContainer(t.Context(), h.pods[0].Containers[0], 0); !errors.Is(err, runtime.ErrUnavailable) {
		t.Errorf("StopContainer() = %v, want the runtime's own error", err)
	}
}

func TestAPodOutlivesItsRuntimeAndIsStopped(t *testing.T) {
	for name, lost := range map[string]bool{"its socket refuses": false, "it is not found any more": true} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			sandbox, container := h.pod("web", "image-SIGQUIT")
			h.stopK3s()
			h.lost = lost
			if got, want := h.seen(), "k3s//web ready=true priority=7: main=Running"; got != want {
				t.Fatalf("Pods() = %s, want %s", got, want)
			}
			must(t, h.in.StopContainer(t.Context(), h.pods[0].Containers[0], time.Minute))
			if got := container.end(t); !strings.HasPrefix(got, "signal: quit") { // with a core dump, if that is allowed
				t.Errorf("the container ended with %q, want its image's stop signal", got)
			}
			if got, want := h.seen(), "k3s//web ready=true priority=7: main=Exited"; got != want {
				t.Errorf("Pods() = %s, want %s", got, want)
			}
			must(t, h.in.StopPod(t.Context(), h.pods[0]))
			if got := sandbox.end(t); got != "signal: killed" {
				t.Errorf("the sandbox ended with %q, want it killed", got)
			}
			if got, want := h.seen(), "k3s//web ready=false priority=7: main=Exited"; got != want {
				t.Errorf("Pods() = %s, want %s", got, want)
			}
			// A container whose state its shim has removed has ended.
			must(t, os.RemoveAll(filepath.Join(h.root, "web-c")))
			must(t, h.in.StopContainer(t.Context(), h.pods[0].Containers[0], time.Minute))
		})
	}
}

// As a last resort, ending the sandbox ends its containers.
func TestASandboxEndsItsContainers(t *testing.T) {
	h := newHost(t)
	sandbox, container := h.pod("web", "image-")
	_, other := h.pod("db", "image-")
	h.stopK3s()
	must(t, h.in.StopPod(t.Context(), h.pods[0]))
	if a, b := container.end(t), sandbox.end(t); a != "signal: killed" || b != "signal: killed" {
		t.Errorf("container and sandbox ended with %q and %q, want them killed", a, b)
	}
	must(t, other.Process.Kill())
	other.end(t)
}

// Between the last list and the end of the runtime, containers may have been created.
func TestUnlistedContainersAreFound(t *testing.T) {
	h := newHost(t)
	h.pod("web", "image-")
	h.stopK3s()
	h.runs("late", "io.kubernetes.cri.sandbox-id=web", "io.kubernetes.cri.container-name=second")
	h.runs("new", "io.kubernetes.cri.sandbox-id=fresh", "io.kubernetes.cri.container-name=main", "io.kubernetes.cri.sandbox-name=api", "io.kubernetes.cri.sandbox-namespace=shop")
	// The second container's sandbox is built only from annotations.
	if got := h.seen(); !strings.Contains(got, "k3s//web ready=true priority=7: main=Running second=Running") || !strings.Contains(got, "k3s/shop/api ready=false priority=: main=Running") {
		t.Errorf("Pods() = %s, want both containers that came late", got)
	}
}

// The runtime may have stopped before it was found.
func TestPodsOfARuntimeThatNobodyHasFoundAreStopped(t *testing.T) {
	h := newHost(t)
	h.lost = true
	h.runs("web")
	container := h.runs("web-c", "io.kubernetes.cri.sandbox-id=web", "io.kubernetes.cri.container-name=main", "io.kubernetes.cri.sandbox-name=web", "io.kubernetes.cri.sandbox-namespace=shop")
	h.in.Adopt(t.Context(), nil, nil, nil)
	if got, want := h.seen(), "containerd/shop/web ready=true priority=: main=Running"; got != want {
		t.Fatalf("Pods() = %s, want %s", got, want)
	}
	pods, err := h.in.Pods(t.Context())
	must(t, err)
	h.gone = true
	must(t, h.in.StopContainer(t.Context(), pods[0].Containers[0], time.Minute))
	if got := container.end(t); got != "signal: terminated" {
		t.Errorf("the container ended with %q, want SIGTERM", got)
	}
}

func TestContainersOfOtherProgramsDoNotCountAsStopped(t *testing.T) {
	h := newHost(t)
	h.pod("web", "image-")
	h.pods = append(h.pods, runtime.Pod{Runtime: "k3s", ID: "vm", Name: "vm", Sandbox: true, Ready: true, Containers: []runtime.Container{{Runtime: "k3s", ID: "vm-c", Name: "main", State: runtime.Running}}})
	h.stopK3s()
	if got := h.seen(); !strings.Contains(got, "k3s//vm ready=true priority=: main=Running") {
		t.Errorf("Pods() = %s, want vm as it was known", got)
	}
	for what, err := range map[string]error{
		"StopContainer": h.in.StopContainer(t.Context(), h.pods[1].Containers[0], 0), "StopPod": h.in.StopPod(t.Context(), h.pods[1]),
	} {
		if !errors.Is(err, runtime.ErrUnsupported) {
			t.Errorf("%s() = %v, want %v", what, err, runtime.ErrUnsupported)
		}
	}
}

// A pod of another runtime belongs to that runtime, even if it fails.
func TestOtherRuntimesAreNotReplaced(t *testing.T) {
	h := newHost(t)
	h.docker = []runtime.Pod{{Runtime: "docker", ID: "shop", Name: "shop", Ready: true}}
	h.pod("web", "image-")
	h.stopK3s()
	if got := h.seen(); !strings.Contains(got, "docker//shop") || !strings.Contains(got, "k3s//web") {
		t.Errorf("Pods() = %s, want those of both", got)
	}
	h.broken = errors.New("broken")
	pods, err := h.in.Pods(t.Context())
	var failed *runtime.SetError
	if !errors.As(err, &failed) || len(failed.Failed) != 1 || failed.Failed[0].Runtime != "docker" || len(pods) != 1 {
		t.Errorf("Pods() = %v, %v, want web and that docker failed", pods, err)
	}
}

func TestReleaseUsesTheRuntimeAgain(t *testing.T) {
	h := newHost(t)
	h.pod("web", "image-")
	h.stopK3s()
	h.in.Release()
	if _, err := h.in.Pods(t.Context()); !errors.Is(err, runtime.ErrUnavailable) {
		t.Errorf("Pods() = %v, want the runtime's own error again", err)
	}
}

// The container was already sent its signal, and some programs exit at once on a second one.
func TestAContainerWhoseRuntimeStopsInAStopIsSignalledOnce(t *testing.T) {
	h := newHost(t)
	_, container := h.pod("web", "image-SIGQUIT")
	h.stopK3s()
	h.stops = func() error {
		time.Sleep(time.Millisecond) // time that the runtime has taken
		return fmt.Errorf("stop: %w: error reading from server: EOF", runtime.ErrLost)
	}
	must(t, h.in.StopContainer(t.Context(), h.pods[0].Containers[0], 50*time.Millisecond))
	if got := container.end(t); got != "signal: killed" {
		t.Errorf("the container ended with %q, want no second signal but SIGKILL at the end of its grace", got)
	}
}

// Its grace began with the call to the runtime.
func TestAGraceIsNotGivenTwice(t *testing.T) {
	h := newHost(t)
	_, container := h.pod("web", "image-SIGQUIT")
	h.stopK3s()
	const grace = 10 * time.Millisecond
	h.stops = func() error {
		time.Sleep(grace)
		return errGone
	}
	must(t, h.in.StopContainer(t.Context(), h.pods[0].Containers[0], grace))
	if got := container.end(t); got != "signal: killed" {
		t.Errorf("the container ended with %q, want nothing but SIGKILL once its grace is over", got)
	}
}

// A container that once had a state of runc does not belong to another program.
func TestAContainerThatEndedBeforeItWasAdoptedIsGone(t *testing.T) {
	h := newHost(t)
	_, container := h.pod("web", "image-")
	h.in.Learn(t.Context(), h.pods)
	must(t, container.Process.Kill())
	container.end(t)
	must(t, os.RemoveAll(filepath.Join(h.root, "web-c")))
	h.stopK3s() // with an earlier list
	if got, want := h.seen(), "k3s//web ready=true priority=7: main=Exited"; got != want {
		t.Errorf("Pods() = %s, want %s", got, want)
	}
	must(t, h.in.StopContainer(t.Context(), h.pods[0].Containers[0], 0))
}

// Once the runtime is gone, only an earlier process knew the stop signals.
func TestTheStopSignalOutlivesTheProcess(t *testing.T) {
	h := newHost(t)
	_, container := h.pod("web", "image-SIGQUIT")
	if got := h.in.Adopt(t.Context(), h.pods, nil, nil); got["web-c"] != "SIGQUIT" {
		t.Errorf("Adopt() = %v, want SIGQUIT of web-c", got)
	}
	next := newHost(t)
	next.root, next.gone = h.root, true
	in, err := orphans.New(orphans.Options{Runtime: next, Root: h.root, Log: slog.New(slog.DiscardHandler), Member: func(string) bool { return true }})
	must(t, err)
	in.Adopt(t.Context(), nil, []runtime.Pod{{Runtime: "k3s", ID: "web", Name: "web", Ready: true, Sandbox: true}}, map[string]string{"web-c": "SIGQUIT"})
	must(t, in.StopContainer(t.Context(), h.pods[0].Containers[0], time.Minute))
	if got := container.end(t); !strings.HasPrefix(got, "signal: quit") { // and the core dumped, where that is allowed
		t.Errorf("the container ended with %q, want its image's stop signal", got)
	}
}

// A runtime's list is newer than the recorded pods.
func TestRecordedPodsAreUsedForRuntimesWithoutAList(t *testing.T) {
	for name, lists := range map[string]bool{"k3s lists some": true, "k3s lists none": false} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			h.pod("web", "image-")
			h.runs("old")
			h.docker = []runtime.Pod{{Runtime: "docker", ID: "shop", Name: "shop"}}
			listed := h.docker
			if lists {
				listed = append(listed, h.pods...)
			}
			h.in.Adopt(t.Context(), listed, []runtime.Pod{{Runtime: "k3s", ID: "old", Name: "old", Ready: true, Sandbox: true, Labels: map[string]string{"hostler.io/priority": "9"}}}, nil)
			h.gone = true
			if got := h.seen(); strings.Contains(got, "k3s//old ready=true priority=9:") == lists {
				t.Errorf("Pods() = %s, want old as it is on record: %t", got, !lists)
			}
		})
	}
}

// Once a runtime's service has stopped, it could not be found any more.
func TestARuntimeThatWasJustFoundIsAdopted(t *testing.T) {
	h := newHost(t)
	h.pod("web", "image-")
	h.lost = true
	in, err := orphans.New(orphans.Options{
		Runtime: h, Root: h.root, Log: slog.New(slog.DiscardHandler), Member: func(string) bool { return true },
		Discover: func(context.Context) bool { found := h.lost; h.lost = false; return found },
	})
	must(t, err)
	h.in = in
	h.in.Adopt(t.Context(), nil, nil, nil)
	h.gone = true
	if got, want := h.seen(), "k3s//web ready=true priority=7: main=Running"; got != want {
		t.Errorf("Pods() = %s, want %s", got, want)
	}
}
