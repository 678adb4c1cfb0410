//go:build integration

package docker_test

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/docker"
	"hostler.io/hostler/runtime/local"
	"hostler.io/hostler/runtime/runtimetest"
	"hostler.io/hostler/test/lab"
	"hostler.io/hostler/test/machine/debian"
)

// patience bounds waits for events that must occur.
const patience = 5 * time.Minute

// labDriver is the Driver of a real dockerd.
type labDriver struct{ *lab.Docker }

func (d labDriver) Abilities() runtimetest.Abilities {
	return runtimetest.Abilities{RefusesImagesInUse: true, Starts: true, ReportsCreation: true}
}

func (d labDriver) AddPinnedImage(t testing.TB, _ string) {
	t.Helper()
	t.Fatal("Docker pins no image")
}

func (d labDriver) AddImage(t testing.TB, tags ...string) {
	t.Helper()
	if _, err := d.Load(t.Context(), lab.ImageSpec{Names: tags, Labels: runtimetest.LargeLabels()}); err != nil {
		t.Fatal(err)
	}
}

func (d labDriver) RunPod(t testing.TB, _, name string, programs ...runtimetest.Program) {
	t.Helper()
	for _, p := range programs {
		c := lab.DockerContainer{Project: name, Name: p.Name, Image: p.Image, Ready: "ready", Labels: runtimetest.LargeLabels()}
		c.Labels["program"] = p.Name
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
		if _, err := d.Run(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
}

func (d labDriver) Hang(t testing.TB) (resume func()) {
	t.Helper()
	if err := d.Pause(); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := d.Continue(); err != nil {
			t.Error(err)
		}
	}
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

func (d labDriver) Rerun(t testing.TB, id string) {
	t.Helper()
	atOnce := 0
	if _, err := d.API.ContainerRestart(t.Context(), id, client.ContainerRestartOptions{Timeout: &atOnce}); err != nil {
		t.Fatal(err)
	}
}

// startDocker starts a real Docker, and returns an adapter for it.
func startDocker(t *testing.T, o lab.DockerOptions) (*docker.Runtime, labDriver) {
	t.Helper()
	d := labDriver{lab.DockerFor(t, o)}
	version, err := d.API.ServerVersion(t.Context(), client.ServerVersionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Log("seen: Docker", version.Version)
	return newAdapter(t, d), d
}

func newAdapter(t *testing.T, d labDriver) *docker.Runtime {
	t.Helper()
	r, err := docker.New(docker.Options{Endpoint: d.Endpoint, Name: "docker", Timeouts: local.Timeouts{Query: runtimetest.Query(t, 30*time.Second)}})
	if err != nil {
		t.Fatal(err)
	}
	runtimetest.CloseAtEnd(t, r)
	return r
}

// onEachDocker runs a test with each available version of Docker.
func onEachDocker(t *testing.T, try func(t *testing.T, o lab.DockerOptions)) {
	t.Helper()
	trixie, err := debian.PrepareDockerd(t.Context(), slog.New(slog.DiscardHandler))
	check(t, err)
	for version, dockerd := range map[string]string{"20.": "", "26.": trixie} {
		t.Run(version+"x", func(t *testing.T) {
			o := lab.DockerOptions{Dockerd: dockerd}
			d := lab.DockerFor(t, o)
			if v, err := d.API.ServerVersion(t.Context(), client.ServerVersionOptions{}); err != nil || !strings.HasPrefix(v.Version, version) {
				t.Fatalf("Docker is %s, %v, want %sx", v.Version, err, version)
			}
			check(t, d.Close(t.Context()))
			try(t, o)
		})
	}
}

// inContainerd starts a Docker that stores its images in containerd, if its version can.
func inContainerd(t *testing.T, o lab.DockerOptions) (*docker.Runtime, labDriver) {
	t.Helper()
	o.ContainerdStore = true
	r, d := startDocker(t, o)
	const place = "/run/containerd/containerd.sock" // Docker 26 does not report containerd's socket
	check(t, os.MkdirAll(filepath.Dir(place), 0o755))
	check(t, os.Symlink(strings.TrimPrefix(d.Containerd.Endpoint, "unix://"), place))
	t.Cleanup(func() { check(t, os.Remove(place)) })
	return r, d
}

// Its pods are Compose projects. The image store makes no difference.
func TestDockerConforms(t *testing.T) {
	onEachDocker(t, func(t *testing.T, o lab.DockerOptions) {
		old, long := o.Dockerd == "", lab.Long() // an old one cannot store images in containerd
		if old && !long {
			t.Skip("takes minutes: run make test-long")
		}
		runtimetest.Record(t, "Docker", *update, func(t *testing.T) (runtime.Runtime, runtimetest.Driver) { return startDocker(t, o) })
		if old || !long {
			return
		}
		t.Run("with images in containerd", func(t *testing.T) {
			runtimetest.Record(t, "Docker", *update, func(t *testing.T) (runtime.Runtime, runtimetest.Driver) { return inContainerd(t, o) })
		})
	})
}
