package cri_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/cri"
	"hostler.io/hostler/runtime/local"
	"hostler.io/hostler/runtime/runtimetest"
)

// watchFor runs Watch while do causes events, until a wanted one arrives, and returns the events
// before it.
func watchFor(t *testing.T, r *cri.Runtime, do func(i int), want func(runtime.Event) bool) []runtime.Event {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	out := make(chan runtime.Event)
	end := make(chan error, 1)
	go func() { end <- r.Watch(ctx, out) }()
	var seen []runtime.Event
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for i := 0; ; {
		select {
		case e := <-out:
			seen = append(seen, e)
			if want(e) {
				return seen
			}
		case <-again.C:
			do(i)
			i++
		case err := <-end:
			t.Fatalf("Watch() = %v after events %+v", err, seen)
		}
	}
}

func TestEventsOfEachService(t *testing.T) {
	for name, c := range map[string]struct {
		flavour
		images bool // whether there are events of images
	}{
		"containerd 1.6 by its own service":               {containerd16, true},
		"containerd 2, which has both, by its own":        {flavour{name: "containerd", version: "v2.1.0", nativeEvents: true, criEvents: true}, true},
		"containerd 2 behind a proxy that knows only CRI": {flavour{name: "containerd", version: "2.1.0", criEvents: true}, false},
		"CRI-O by CRI": {flavour{name: "cri-o", version: "1.30.2", criEvents: true}, false},
		"a containerd that is wrong about exec'd processes": {flavour{name: "containerd", version: "1.7.24", nativeEvents: true}, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, c.flavour)
			r := s.client(t, nil)
			s.fake.AddImage(runtimetest.ImageSpec{Tags: []string{"a:1"}})
			var ids []string
			run := func(int) {
				ctr := s.fake.RunPod(runtimetest.PodSpec{Containers: []runtimetest.ContainerSpec{{Name: "a", Image: "a:1"}}}).Containers[0]
				ids = append(ids, ctr.ID)
				s.fake.Exit(ctr.ID, 0)
				if err := s.fake.RemoveContainer(t.Context(), ctr); err != nil {
					t.Error(err)
				}
				s.fake.AddImage(runtimetest.ImageSpec{Tags: []string{"b:1"}})
			}
			seen := map[runtime.EventType]int{}
			events := watchFor(t, r, run, func(e runtime.Event) bool {
				seen[e.Type]++
				return seen[runtime.ContainerRemoved] > 1 && (!c.images || seen[runtime.ImageAdded] > 1)
			})
			exits := map[string]int{}
			for _, e := range events {
				if one := (e.ContainerID == "") != (e.Image == ""); e.Runtime != "under-test" || e.Time.IsZero() || one == (e.Type == runtime.ContainerCreated) {
					t.Errorf("event %+v, want the runtime's name, a time, and one object, or a container and its image where it is made", e)
				}
				if e.ContainerID != "" && !strings.Contains(strings.Join(ids, " "), e.ContainerID) {
					t.Errorf("event %+v of a container that is not there", e)
				}
				if e.Type == runtime.ContainerExited {
					exits[e.ContainerID]++
				}
			}
			for id, n := range exits {
				if n != 1 {
					t.Errorf("%d exits of container %s, want 1: an exec'd process is none", n, id)
				}
			}
			if seen[runtime.ContainerStarted] == 0 || len(exits) == 0 {
				t.Errorf("events %v, want starts and exits too", seen)
			}
		})
	}
}

func TestRuntimesWithoutEvents(t *testing.T) {
	for name, f := range map[string]flavour{
		// Each event reaches only one reader, so kubelet would miss some.
		"containerd 1.7 without its own service": {name: "containerd", version: "1.7.24", criEvents: true},
		"CRI-O 1.26":                             {name: "cri-o", version: "1.26.3", criEvents: true},
		"a version that is no number":            {name: "containerd", version: "devel", criEvents: true},
		"cri-dockerd":                            {name: "docker", version: "24.0.7", criEvents: true},
		"containerd 2 with neither":              {name: "containerd", version: "2.0.0"},
	} {
		t.Run(name, func(t *testing.T) {
			err := newServer(t, f).client(t, nil).Watch(t.Context(), make(chan runtime.Event))
			if !errors.Is(err, runtime.ErrUnsupported) {
				t.Errorf("Watch() = %v, want %v", err, runtime.ErrUnsupported)
			}
		})
	}
}

func TestWatchEndsWithTheRuntime(t *testing.T) {
	s := newServer(t, containerd16)
	r := s.client(t, nil)
	watchFor(t, r, func(int) { s.fake.AddImage(runtimetest.ImageSpec{}) }, func(runtime.Event) bool { return true })
	end := make(chan error, 1)
	go func() { end <- r.Watch(t.Context(), make(chan runtime.Event, 100)) }()
	// Whether this ends the stream or its opening, Watch must end.
	s.grpc.Stop()
	select {
	case err := <-end:
		if !errors.Is(err, runtime.ErrUnavailable) {
			t.Errorf("Watch() = %v, want %v", err, runtime.ErrUnavailable)
		}
	case <-time.After(patience):
		t.Errorf("Watch() continues without its runtime")
	}
}

// hangingSocket listens on a socket and never answers, like a stopped process.
func hangingSocket(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "cri")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "mute.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return path
}

func TestAnUnresponsiveRuntimeIsNotWaitedFor(t *testing.T) {
	r, err := cri.New(cri.Options{Endpoint: hangingSocket(t), Timeouts: local.Timeouts{Query: 200 * time.Millisecond}})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	start := time.Now()
	if err := r.Watch(t.Context(), make(chan runtime.Event)); !errors.Is(err, runtime.ErrUnavailable) {
		t.Errorf("Watch() = %v, want %v", err, runtime.ErrUnavailable)
	}
	if _, err := r.Info(t.Context()); !errors.Is(err, runtime.ErrUnavailable) {
		t.Errorf("Info() = %v, want %v", err, runtime.ErrUnavailable)
	}
	if took := time.Since(start); took > patience/2 {
		t.Errorf("Watch() and Info() took %v, want two deadlines of 200ms", took)
	}
}

func TestDetect(t *testing.T) {
	t.Parallel()
	s := newServer(t, containerd16)
	hung := hangingSocket(t)
	dir := filepath.Dir(s.socket)
	file, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(s.socket, link); err != nil {
		t.Fatal(err)
	}
	left := filepath.Join(dir, "left")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: left})
	if err != nil {
		t.Fatal(err)
	}
	listener.SetUnlinkOnClose(false)
	listener.Close()
	found := new(local.Detector).Detect(t.Context(), []local.Candidate{
		{Name: "missing", Path: filepath.Join(dir, "missing.sock")},
		{Name: "file", Path: file},
		{Name: "real", Path: s.socket},
		{Name: "same", Path: link},
		{Name: "hung", Path: hung},
		{Name: "left", Path: left},
	}, nil, cri.Ask)
	if len(found) != 3 {
		t.Fatalf("Detect() = %+v, want real, hung and left", found)
	}
	if d := found[0]; d.Name != "real" || d.Err != nil || d.RuntimeName != "containerd" || d.Version != "1.6.20~ds1" {
		t.Errorf("Detect() = %+v, want real, containerd 1.6.20~ds1", d)
	}
	if d := found[1]; d.Name != "hung" || !errors.Is(d.Err, runtime.ErrUnavailable) || d.RuntimeName != "" {
		t.Errorf("Detect() = %+v, want hung, %v", d, runtime.ErrUnavailable)
	}
	if found[0].NoAnswer() || !found[1].NoAnswer() || found[2].NoAnswer() || !errors.Is(found[2].Err, runtime.ErrUnavailable) {
		t.Errorf("Detect() = %+v, want hung alone to be unresponsive, and left to be %v", found, runtime.ErrUnavailable)
	}
}

func TestNames(t *testing.T) {
	for endpoint, want := range map[string]string{
		"unix:///run/containerd/containerd.sock": "containerd",
		"/run/crio/crio.sock":                    "cri-o",
		"/run/k3s/containerd/containerd.sock":    "k3s",
		"/srv/mine.sock":                         "mine",
	} {
		if got := cri.NameOf(endpoint); got != want {
			t.Errorf("NameOf(%q) = %q, want %q", endpoint, got, want)
		}
	}
}
