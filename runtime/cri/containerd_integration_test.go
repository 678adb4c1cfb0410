//go:build integration

package cri_test

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/containerd/api/services/containers/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/anypb"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/cri"
	"hostler.io/hostler/runtime/local"
	"hostler.io/hostler/runtime/runtimetest"
	"hostler.io/hostler/test/lab"
	"hostler.io/hostler/test/machine/debian"
)

// labDriver is the Driver of a real containerd.
type labDriver struct {
	*lab.Containerd
	version string
}

func (d labDriver) Abilities() runtimetest.Abilities {
	return runtimetest.Abilities{Sandboxes: true, Namespaces: true, ReportsCreation: true, Pins: !strings.HasPrefix(d.version, "1.6.")}
}

func (d labDriver) AddImage(t testing.TB, tags ...string) {
	t.Helper()
	if _, err := d.Pull(t.Context(), lab.ImageSpec{Names: tags, Labels: runtimetest.Labels()}); err != nil {
		t.Fatal(err)
	}
}

func (d labDriver) AddPinnedImage(t testing.TB, tag string) {
	t.Helper()
	d.AddImage(t, tag)
	if err := d.Pin(t.Context(), tag); err != nil {
		t.Fatal(err)
	}
}

func (d labDriver) RunPod(t testing.TB, namespace, name string, programs ...runtimetest.Program) {
	t.Helper()
	spec := lab.PodSpec{Namespace: namespace, Name: name, Labels: runtimetest.Labels()}
	for _, p := range programs {
		c := lab.ContainerSpec{Name: p.Name, Image: p.Image, Ready: "ready", Labels: map[string]string{"program": p.Name}}
		switch p.Does {
		case runtimetest.EndsOnTERM:
			c.Command = []string{"sh", "-c", fmt.Sprintf("trap 'exit %d' TERM; echo ready; while :; do sleep 86400 & wait $!; done", runtimetest.TermCode)}
		case runtimetest.IgnoresTERM:
			c.Command = lab.IgnoreTerm()
		case runtimetest.EndsAtOnce:
			c.Command, c.Ready = lab.ExitWith(int(runtimetest.EndCode)), ""
		case runtimetest.NeverStarted:
			c.Unstarted = true
		default:
			t.Fatalf("program %q: behaviour %d is unknown", p.Name, p.Does)
		}
		spec.Containers = append(spec.Containers, c)
	}
	if _, err := d.Containerd.RunPod(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
}

func (d labDriver) Hang(t testing.TB) (resume func()) {
	t.Helper()
	if err := d.Pause(); err != nil {
		t.Fatal(err)
	}
	// The signal stops threads one after the other, and until then each can still answer.
	for deadline := time.Now().Add(patience); !stopped(t, d.PID()); goruntime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("containerd is not stopped within %v", patience)
		}
	}
	return func() {
		if err := d.Continue(); err != nil {
			t.Error(err)
		}
	}
}

// stopped reports whether every thread of a process is stopped, by the state in proc_pid_stat(5).
func stopped(t testing.TB, pid int) bool {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil || len(files) == 0 {
		t.Fatalf("threads of process %d: %v, %v, want some", pid, files, err)
	}
	for _, f := range files {
		data, err := os.ReadFile(f)
		_, state, _ := strings.Cut(string(data), ") ")
		if err != nil || !strings.HasPrefix(state, "T") {
			return false
		}
	}
	return true
}

func (d labDriver) Crash(t testing.TB) (restart func()) {
	t.Helper()
	if err := d.Kill(); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := errors.Join(d.Start(), d.Ready(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
}

// startContainerd starts a real containerd, and returns an adapter for it.
func startContainerd(t *testing.T, o lab.ContainerdOptions) (*cri.Runtime, labDriver) {
	t.Helper()
	return startIn(t, lab.In(t), o)
}

// startIn is startContainerd in a lab.
func startIn(t *testing.T, l *lab.Lab, o lab.ContainerdOptions) (*cri.Runtime, labDriver) {
	t.Helper()
	d := labDriver{Containerd: l.ContainerdFor(t, o)}
	r := newAdapter(t, d)
	info, err := r.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	d.version = info.Version
	return r, d
}

func newAdapter(t *testing.T, d labDriver) *cri.Runtime {
	t.Helper()
	r, err := cri.New(cri.Options{Endpoint: d.Endpoint, Name: "containerd", Timeouts: local.Timeouts{Query: runtimetest.Query(t, 30*time.Second)}})
	if err != nil {
		t.Fatal(err)
	}
	runtimetest.CloseAtEnd(t, r)
	return r
}

func TestContainerdConforms(t *testing.T) {
	runtimetest.Run(t, func(t *testing.T) (runtime.Runtime, runtimetest.Driver) {
		return startContainerd(t, lab.ContainerdOptions{})
	})
}

func TestContainerdOfDebian13Conforms(t *testing.T) {
	tree, err := debian.PrepareRuntimes(t.Context(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	runtimetest.Record(t, "containerd", *update, func(t *testing.T) (runtime.Runtime, runtimetest.Driver) {
		r, d := startIn(t, lab.TreeFor(t, tree), lab.ContainerdOptions{})
		if !strings.HasPrefix(d.version, "1.7.") {
			t.Fatalf("containerd is %s, want 1.7.x", d.version)
		}
		return r, d
	})
}

func TestContainerdReportsItsSandboxImage(t *testing.T) {
	r, d := startContainerd(t, lab.ContainerdOptions{})
	d.AddImage(t, "docker.io/library/a:1")
	d.RunPod(t, "barn", "horse", runtimetest.Program{Name: "a", Image: "docker.io/library/a:1"})
	info, err := r.Info(t.Context())
	if err != nil || info.Name != "containerd" || info.SandboxImage != d.SandboxImage {
		t.Fatalf("Info() = %+v, %v, want containerd with sandbox image %s", info, err, d.SandboxImage)
	}
	images, err := r.Images(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// Protection compares this name with names of images.
	if !slices.ContainsFunc(images, func(i runtime.Image) bool { return slices.Contains(i.Tags, info.SandboxImage) }) {
		t.Errorf("Images() = %+v, want one named %s", images, info.SandboxImage)
	}
}

// TestContainerdRemovesImagesInUse shows why hostler itself must protect images in use: containerd
// removes them.
func TestContainerdRemovesImagesInUse(t *testing.T) {
	r, d := startContainerd(t, lab.ContainerdOptions{})
	d.AddImage(t, "docker.io/library/a:1")
	d.RunPod(t, "barn", "horse", runtimetest.Program{Name: "a", Image: "docker.io/library/a:1"})
	before := pods(t, r, 1)[0].Containers[0]
	images, err := r.Images(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range images {
		if err := r.RemoveImage(t.Context(), i); err != nil {
			t.Errorf("RemoveImage(%s) in use = %v", i.Names()[0], err)
		}
	}
	if images, err = r.Images(t.Context()); err != nil || len(images) != 0 {
		t.Errorf("Images() = %+v, %v, want none", images, err)
	}
	after := pods(t, r, 1)[0].Containers[0]
	if after.State != runtime.Running || after.ImageID != before.ImageID {
		t.Errorf("container is %v of image %q, want it running still, of %q", after.State, after.ImageID, before.ImageID)
	}
}

// A container that is unknown to CRI also keeps its image.
func TestContainerdReportsWhoElseUsesImages(t *testing.T) {
	r, d := startContainerd(t, lab.ContainerdOptions{})
	d.AddImage(t, "docker.io/library/a:1")
	d.RunPod(t, "barn", "horse", runtimetest.Program{Name: "a", Image: "docker.io/library/a:1"})
	if got, err := r.OtherImageUsers(t.Context()); err != nil || len(got) != 0 {
		t.Errorf("OtherImageUsers() = %+v, %v, want none but CRI's", got, err)
	}
	conn, err := grpc.NewClient(d.Endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx := metadata.AppendToOutgoingContext(t.Context(), "containerd-namespace", "k8s.io")
	_, err = containers.NewContainersClient(conn).Create(ctx, &containers.CreateContainerRequest{Container: &containers.Container{
		ID: "builder", Image: "docker.io/library/a:1", Spec: &anypb.Any{TypeUrl: "spec", Value: []byte("{}")},
		Runtime: &containers.Container_Runtime{Name: "io.containerd.runc.v2"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	want := []runtime.ImageUser{{Image: "docker.io/library/a:1", By: "container builder, not managed by CRI"}}
	if got, err := r.OtherImageUsers(t.Context()); err != nil || !slices.Equal(got, want) {
		t.Errorf("OtherImageUsers() = %+v, %v, want %+v", got, err, want)
	}
}

func TestDetectContainerd(t *testing.T) {
	_, d := startContainerd(t, lab.ContainerdOptions{})
	path, err := local.ParseEndpoint(d.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	var found []local.Detected
	for range 100 { // on a busy machine, it may answer too late
		found = new(local.Detector).Detect(t.Context(), []local.Candidate{{Name: "mine", Path: path}}, nil, cri.Ask)
		if len(found) == 1 && !found[0].NoAnswer() {
			break
		}
	}
	if len(found) != 1 || found[0].Err != nil || found[0].RuntimeName != "containerd" || found[0].Version == "" {
		t.Errorf("Detect() = %+v, want mine, a containerd with a version", found)
	}
}
