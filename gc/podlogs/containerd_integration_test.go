//go:build integration

package podlogs_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"hostler.io/hostler/gc"
	"hostler.io/hostler/gc/collect"
	"hostler.io/hostler/gc/lastused"
	"hostler.io/hostler/gc/meter"
	"hostler.io/hostler/gc/podlogs"
	"hostler.io/hostler/gc/runs"
	"hostler.io/hostler/gc/survey"
	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/cri"
	"hostler.io/hostler/test/lab"
)

const image = "docker.io/library/web:1"

// stable has a containerd, and a collector for it and for the logs of the lab.
type stable struct {
	*testing.T
	*lab.Containerd
	counted
	collector *collect.Containers
}

// counted counts parallel removals.
type counted struct {
	*cri.Runtime
	now, most *atomic.Int32
}

func (c counted) RemoveContainer(ctx context.Context, container runtime.Container) error {
	now := c.now.Add(1)
	defer c.now.Add(-1)
	for most := c.most.Load(); now > most && !c.most.CompareAndSwap(most, now); most = c.most.Load() {
	}
	return c.Runtime.RemoveContainer(ctx, container)
}

type forgetful struct{}

func (forgetful) Load(any)              {}
func (forgetful) SaveLazily(func() any) {}

func newStable(t *testing.T) *stable {
	t.Helper()
	lab.In(t) // the lab has its own /var/log
	if err := errors.Join(os.RemoveAll("/var/log/pods"), os.RemoveAll("/var/log/containers")); err != nil {
		t.Fatal(err)
	}
	c := lab.ContainerdFor(t, lab.ContainerdOptions{HostLogs: true})
	r, err := cri.New(cri.Options{Endpoint: c.Endpoint, Name: "containerd"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	s := &stable{T: t, Containerd: c, counted: counted{r, new(atomic.Int32), new(atomic.Int32)}}
	tracker, err := lastused.New(lastused.Options{Store: forgetful{}, Runtimes: func() []lastused.Runtime { return []lastused.Runtime{r} }, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	policy := gc.DefaultPolicy().Containers
	policy.AbandonedAge = 0
	s.collector, err = collect.NewContainers(policy, runs.Options{
		Interval: time.Minute, Log: log,
		Survey: &survey.Survey{
			Runtimes: func() []survey.Runtime { return []survey.Runtime{s.counted} },
			Meter:    &meter.Statfs{}, Uses: tracker, Logs: podlogs.New("/"),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Pull(t.Context(), lab.ImageSpec{Names: []string{image}})
	s.check(err)
	return s
}

func (s *stable) check(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// Name is the test's name; s.counted.Name is the runtime's.
func (s *stable) Name() string { return s.T.Name() }

func (s *stable) run(name string, containers ...lab.ContainerSpec) *lab.Pod {
	s.Helper()
	p, err := s.Containerd.RunPod(s.Context(), lab.PodSpec{Name: name, Namespace: "barn", Containers: containers})
	s.check(err)
	return p
}

// collect runs a collection that must succeed.
func (s *stable) collect() runs.Report {
	s.Helper()
	r, err := s.collector.Collect(s.Context(), gc.Options{}, nil)
	if err != nil || len(r.Errors) > 0 {
		s.Fatalf("Collect() = %v, errors %q, want none", err, r.Errors)
	}
	return r
}

func (s *stable) pods() []runtime.Pod {
	s.Helper()
	pods, err := s.counted.Pods(s.Context())
	s.check(err)
	return pods
}

func serve(name string) lab.ContainerSpec {
	return lab.ContainerSpec{Name: name, Image: image, Command: lab.ServeFor(0), Ready: "ready"}
}

func logFolder(p *lab.Pod) string {
	return filepath.Join("/var/log/pods", p.Namespace+"_"+p.Name+"_"+p.UID)
}

func removed(r runs.Report, kind string) []string {
	ids := []string{}
	for _, one := range r.Removed {
		if one.Kind == kind {
			ids = append(ids, one.ID)
		}
	}
	slices.Sort(ids)
	return ids
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func TestADeadPodOfContainerdGoesWithItsContainersAndLogs(t *testing.T) {
	s := newStable(t)
	dead := s.run("dead", serve("web"), lab.ContainerSpec{Name: "job", Image: image, Command: lab.ExitWith(3)}, lab.ContainerSpec{Name: "new", Image: image, Unstarted: true})
	live := s.run("live", serve("web"), lab.ContainerSpec{Name: "new", Image: image, Unstarted: true})
	_, err := s.AwaitExit(t.Context(), dead.Containers["job"])
	s.check(err)
	s.check(s.Containerd.StopPod(t.Context(), dead))

	r := s.collect()
	want := slices.Sorted(slices.Values([]string{dead.Containers["web"], dead.Containers["job"], dead.Containers["new"], live.Containers["new"]}))
	if got := removed(r, runs.KindContainer); !slices.Equal(got, want) {
		t.Errorf("Collect() removed containers %v, want %v", got, want)
	}
	if got := removed(r, runs.KindPod); !slices.Equal(got, []string{dead.ID}) {
		t.Errorf("Collect() removed pods %v, want %s", got, dead.ID)
	}
	if !exists(logFolder(dead)) {
		t.Errorf("the logs of a pod that went in this run are gone, want them to wait for the next")
	}
	r = s.collect()
	var paths []string
	for _, name := range []string{"web", "job"} {
		paths = append(paths, fmt.Sprintf("/var/log/containers/dead_barn_%s-%s.log", name, dead.Containers[name]))
	}
	// The links dangle after the folder is removed.
	if got := removed(r, runs.KindLog); !slices.Equal(got, []string{logFolder(dead)}) {
		t.Errorf("Collect() removed logs %v, want %s", got, logFolder(dead))
	}
	slices.Sort(paths)
	if got := removed(s.collect(), runs.KindLog); !slices.Equal(got, paths) {
		t.Errorf("Collect() removed logs %v, want %v", got, paths)
	}
	pods := s.pods()
	if len(pods) != 1 || !pods[0].Ready || len(pods[0].Containers) != 1 || pods[0].Containers[0].State != runtime.Running {
		t.Errorf("Pods() = %+v, want the pod that lives with what runs in it", pods)
	}
	if !exists(logFolder(live)+"/web/0.log") || !exists(fmt.Sprintf("/var/log/containers/live_barn_web-%s.log", live.Containers["web"])) {
		t.Errorf("the logs of the pod that lives are gone")
	}
}

// containerd loses track of a container if it cannot read its status after a start.
func TestAContainerThatContainerdLostTrackOfIsStoppedBeforeItGoes(t *testing.T) {
	s := newStable(t)
	p := s.run("lost", serve("web"))
	id := p.Containers["web"]
	s.check(s.Containerd.Kill())
	status := filepath.Join(s.Root, "io.containerd.grpc.v1.cri/containers", id, "status")
	if !exists(status) {
		t.Fatalf("containerd keeps no status at %s", status)
	}
	s.check(os.WriteFile(status, []byte("torn"), 0o600))
	s.check(errors.Join(s.Start(), s.Ready(t.Context())))
	pods := s.pods()
	if len(pods) != 1 || len(pods[0].Containers) != 1 || pods[0].Containers[0].State != runtime.Unknown {
		t.Fatalf("Pods() = %+v, want one container in an unknown state", pods)
	}
	if len(processesOf(t, id)) == 0 {
		t.Fatalf("no process of the container runs, want it to live on")
	}
	if err := s.RemoveContainer(t.Context(), pods[0].Containers[0]); !errors.Is(err, runtime.ErrInUse) {
		t.Errorf("RemoveContainer() = %v, want %v: it runs", err, runtime.ErrInUse)
	}
	// In a running pod it counts as the newest dead container with its name.
	if r := s.collect(); len(r.Removed) > 0 {
		t.Errorf("Collect() removed %+v, want nothing", r.Removed)
	}
	next := serve("web")
	next.Attempt = 1
	newer, err := s.RunContainer(t.Context(), p, next)
	s.check(err)
	_, err = s.Containerd.Runtime.StopContainer(t.Context(), &criapi.StopContainerRequest{ContainerId: newer})
	s.check(err)
	if got := removed(s.collect(), runs.KindContainer); !slices.Equal(got, []string{id}) {
		t.Errorf("Collect() removed %v, want %s, which a newer one of its name has followed", got, id)
	}
	if left := processesOf(t, id); len(left) > 0 {
		t.Errorf("processes of the container that went are left: %v", left)
	}
}

// processesOf returns the processes in a container's cgroup.
func processesOf(t *testing.T, id string) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cgroup")
	if err != nil || len(files) == 0 {
		t.Fatalf("processes: %v, %v, want some", files, err)
	}
	var left []string
	for _, file := range files {
		if text, err := os.ReadFile(file); err == nil && strings.Contains(string(text), id) {
			left = append(left, filepath.Dir(file))
		}
	}
	return left
}

func TestHundredsOfDeadContainersGoAFewAtATime(t *testing.T) {
	const n, pods = 300, 6
	s := newStable(t)
	var running []string
	for i := range pods {
		p := s.run(fmt.Sprintf("p%d", i), serve("web"))
		running = append(running, p.Containers["web"])
		for j := range n / pods {
			_, err := s.RunContainer(t.Context(), p, lab.ContainerSpec{Name: "job", Image: image, Attempt: uint32(j), Unstarted: true})
			s.check(err)
		}
	}
	asked := make(chan []time.Duration, 1)
	ctx, stop := context.WithCancel(t.Context())
	go func() { asked <- s.askOnAndOn(ctx) }()
	r := s.collect()
	stop()
	during := <-asked
	if len(r.Removed) != n {
		t.Errorf("Collect() removed %d, ended %q, want %d", len(r.Removed), r.Ended, n)
	}
	if most := s.most.Load(); most < 2 || most > 4 {
		t.Errorf("%d removals at once, want from 2 to 4", most)
	}
	for _, p := range s.pods() {
		if !p.Ready || len(p.Containers) != 1 || !slices.Contains(running, p.Containers[0].ID) || p.Containers[0].State != runtime.Running {
			t.Errorf("Pods() = %+v, want only what ran before, running", p)
		}
	}
	slices.Sort(during)
	if len(during) == 0 {
		t.Fatalf("containerd answered nobody else during the collection")
	}
	t.Logf("%d containers were removed in %v, at most %d at once; meanwhile a list of pods took %v in the median and at most %v, of %d",
		n, r.Duration.Round(time.Millisecond), s.most.Load(), during[len(during)/2], during[len(during)-1], len(during))
}

// askOnAndOn lists the pods repeatedly, as other clients do, and returns how long each call took.
func (s *stable) askOnAndOn(ctx context.Context) (took []time.Duration) {
	for {
		started := time.Now()
		if _, err := s.Containerd.Runtime.ListPodSandbox(ctx, &criapi.ListPodSandboxRequest{}); err != nil {
			return took
		}
		took = append(took, time.Since(started))
	}
}

func TestNothingMountedInALogFolderIsTouched(t *testing.T) {
	s := newStable(t)
	folder := "/var/log/pods/barn_horse_mounted"
	precious := t.TempDir()
	s.check(os.WriteFile(filepath.Join(precious, "0.log"), []byte("precious"), 0o600))
	s.check(os.MkdirAll(folder+"/saddle", 0o755))
	s.check(unix.Mount(precious, folder+"/saddle", "", unix.MS_BIND, ""))
	t.Cleanup(func() { _ = unix.Unmount(folder+"/saddle", unix.MNT_DETACH) })
	file := "/var/log/pods/barn_mare_mounted/saddle/0.log"
	s.check(os.MkdirAll(filepath.Dir(file), 0o755))
	s.check(os.WriteFile(file, nil, 0o600))
	s.check(unix.Mount(filepath.Join(precious, "0.log"), file, "", unix.MS_BIND, ""))
	t.Cleanup(func() { _ = unix.Unmount(file, unix.MNT_DETACH) })
	whole := "/var/log/pods/barn_foal_mounted"
	s.check(os.MkdirAll(whole, 0o755))
	s.check(unix.Mount(precious, whole, "", unix.MS_BIND, ""))
	t.Cleanup(func() { _ = unix.Unmount(whole, unix.MNT_DETACH) })

	if r := s.collect(); len(r.Removed) > 0 || r.Kept[gc.NotManaged] != 3 {
		t.Errorf("Collect() removed %+v, kept %v, want 3 folders left alone", r.Removed, r.Kept)
	}
	if text, err := os.ReadFile(filepath.Join(precious, "0.log")); err != nil || string(text) != "precious" {
		t.Errorf("what is mounted in a log folder = %q, %v, want it untouched", text, err)
	}
}
