//go:build integration

package podman_test

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"testing"
	"time"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/local"
	"hostler.io/hostler/runtime/podman"
	"hostler.io/hostler/runtime/runtimetest"
	"hostler.io/hostler/test/lab"
	"hostler.io/hostler/test/machine/debian"
)

// labDriver is the Driver of a real Podman, whose pods are Podman pods or, if projects is set,
// Compose projects.
type labDriver struct {
	*lab.Podman
	projects bool
}

func (d labDriver) Abilities() runtimetest.Abilities {
	return runtimetest.Abilities{RefusesImagesInUse: true, PodsStay: !d.projects, Starts: true, Pins: true}
}

func (d labDriver) AddImage(t testing.TB, tags ...string) {
	t.Helper()
	_, err := d.Load(t.Context(), lab.ImageSpec{Names: tags, Labels: runtimetest.LargeLabels()})
	check(t, err)
}

// AddPinnedImage also adds the image to an additional store, which Podman may not change.
func (d labDriver) AddPinnedImage(t testing.TB, tag string) {
	t.Helper()
	d.AddImage(t, tag)
	check(t, d.Share(t.Context(), tag))
}

func (d labDriver) RunPod(t testing.TB, _, name string, programs ...runtimetest.Program) {
	t.Helper()
	if !d.projects {
		_, err := d.MakePod(t.Context(), name, runtimetest.LargeLabels())
		check(t, err)
	}
	for _, p := range programs {
		c := lab.PodmanContainer{Name: p.Name, Image: p.Image, Ready: "ready", Labels: map[string]string{"program": p.Name}}
		if d.projects {
			maps.Copy(c.Labels, runtimetest.LargeLabels())
			c.Labels["com.docker.compose.project"] = name
		} else {
			c.Pod = name
		}
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
		_, err := d.Run(t.Context(), c)
		check(t, err)
	}
}

func (d labDriver) Hang(t testing.TB) (resume func()) {
	t.Helper()
	check(t, d.Pause())
	return func() {
		if err := d.Continue(); err != nil {
			t.Error(err)
		}
	}
}

func (d labDriver) Crash(t testing.TB) (restart func()) {
	t.Helper()
	check(t, d.Kill())
	return func() { check(t, errors.Join(d.Start(), d.Ready(t.Context()))) }
}

func (d labDriver) Rerun(t testing.TB, id string) {
	t.Helper()
	_, err := d.Command(t.Context(), "restart", "--time", "0", id)
	check(t, err)
}

// startPodman starts a real Podman, and returns an adapter for it.
func startPodman(t *testing.T, o lab.PodmanOptions) (*podman.Runtime, labDriver) {
	t.Helper()
	return startIn(t, lab.In(t), o)
}

// startIn is startPodman in a lab.
func startIn(t *testing.T, l *lab.Lab, o lab.PodmanOptions) (*podman.Runtime, labDriver) {
	t.Helper()
	d := labDriver{Podman: l.PodmanFor(t, o)}
	return newAdapter(t, d.Podman, nil), d
}

func newAdapter(t *testing.T, p *lab.Podman, units local.Units) *podman.Runtime {
	t.Helper()
	r, err := podman.New(podman.Options{Endpoint: p.Endpoint, Name: "podman", Units: units, Timeouts: local.Timeouts{Query: runtimetest.Query(t, 30*time.Second)}})
	check(t, err)
	runtimetest.CloseAtEnd(t, r)
	return r
}

func TestPodmanConforms(t *testing.T) {
	lab.TakesMinutes(t) // TestPodmanConformsWithProjects is of the same Podman
	runtimetest.Record(t, "Podman", *update, func(t *testing.T) (runtime.Runtime, runtimetest.Driver) {
		return startPodman(t, lab.PodmanOptions{})
	})
}

// Debian 13's Podman has another database for its containers, and runs them with crun.
func TestPodmanOfDebian13Conforms(t *testing.T) {
	lab.TakesMinutes(t)
	tree, err := debian.PrepareRuntimes(t.Context(), slog.New(slog.DiscardHandler))
	check(t, err)
	runtimetest.Record(t, "Podman", *update, func(t *testing.T) (runtime.Runtime, runtimetest.Driver) {
		r, d := startIn(t, lab.TreeFor(t, tree), lab.PodmanOptions{Runtime: "crun"})
		if info, err := r.Info(t.Context()); err != nil || !strings.HasPrefix(info.Version, "5.4.") {
			t.Fatalf("Info() = %+v, %v, want Podman 5.4", info, err)
		}
		return r, d
	})
}

func TestPodmanConformsWithProjects(t *testing.T) {
	runtimetest.Run(t, func(t *testing.T) (runtime.Runtime, runtimetest.Driver) {
		r, d := startPodman(t, lab.PodmanOptions{})
		d.projects = true
		return r, d
	})
}
