package discovery

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/cri"
	"hostler.io/hostler/runtime/docker"
	"hostler.io/hostler/runtime/local"
	"hostler.io/hostler/runtime/runtimetest"
)

func TestDockerIsSearchedForAfterCRI(t *testing.T) {
	r, err := New(Options{Auto: true, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	last := len(cri.DefaultCandidates())
	if len(r.candidates) <= last || slices.ContainsFunc(r.candidates[:last], func(c local.Candidate) bool { return c.Type != cri.Type }) ||
		!slices.Contains(r.candidates[last:], docker.DefaultCandidates()[0]) {
		t.Errorf("candidates = %v, want those of CRI, and then Docker's", r.candidates)
	}
}

// removedRuntime returns a set with one runtime that was found at path and is not ready since then.
func removedRuntime(t *testing.T, path, kind string, since time.Time) *Runtimes {
	t.Helper()
	r := opened(t)
	r.candidates = []local.Candidate{{Type: kind, Name: kind, Path: path}}
	if err := r.open(r.candidates[0]); err != nil {
		t.Fatal(err)
	}
	r.results.states[kind] = runtime.Health{Since: since}
	return r
}

func TestADockerThatHasEndedIsNotExpectedForEver(t *testing.T) {
	long := time.Now().Add(-2 * goneAfter)
	served := func(t *testing.T) string {
		path := filepath.Join(folder(t), "docker.sock")
		l, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		return path
	}
	none := func(t *testing.T) string { return filepath.Join(folder(t), "docker.sock") }
	for name, tt := range map[string]struct {
		path   func(*testing.T) string
		kind   string
		since  time.Time
		change func(*Runtimes)
		gone   bool
	}{
		"stopped long ago":            {none, docker.Type, long, nil, true},
		"stopped just now":            {none, docker.Type, time.Now(), nil, false},
		"it hangs":                    {served, docker.Type, long, nil, false},
		"a containerd":                {none, cri.Type, long, nil, false},
		"one that somebody has named": {none, docker.Type, long, func(r *Runtimes) { r.candidates = nil }, false},
		"one that is ready": {none, docker.Type, long, func(r *Runtimes) {
			r.results.states[docker.Type] = runtime.Health{Info: runtime.Info{Ready: true}, Since: long}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := removedRuntime(t, tt.path(t), tt.kind, tt.since)
			if tt.change != nil {
				tt.change(r)
			}
			r.removeGone(time.Now())
			if gone := !r.member(tt.kind); gone != tt.gone || (len(r.Gone()) > 0) != tt.gone {
				t.Errorf("gone: %t, %+v; want %t", gone, r.Gone(), tt.gone)
			}
		})
	}
}

func TestADockerWhoseContainersRunIsExpected(t *testing.T) {
	r := removedRuntime(t, filepath.Join(folder(t), "docker.sock"), docker.Type, time.Now())
	tasks := folder(t)
	m := r.set.Members()[0]
	if !ended(m, []string{filepath.Join(tasks, "*")}) {
		t.Error("ended() = false, want true where nothing is left")
	}
	if err := os.Mkdir(filepath.Join(tasks, "c0ffee"), 0o700); err != nil {
		t.Fatal(err)
	}
	if ended(m, []string{filepath.Join(tasks, "*")}) {
		t.Error("ended() = true, want false while a container runs")
	}
}

// Package podman-docker puts a link at Docker's socket.
func TestASocketOfPodmansIsNotDockers(t *testing.T) {
	dir := folder(t)
	link := filepath.Join(dir, "docker.sock")
	if err := os.Symlink(filepath.Join(dir, "podman.sock"), link); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "podman.sock"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if !isForeignSocket(local.Candidate{Type: docker.Type, Path: link}) || isForeignSocket(local.Candidate{Type: docker.Type, Path: filepath.Join(dir, "other", "docker.sock")}) {
		t.Error("borrowed() takes one for the other")
	}
}

func TestThePodsOfANodeAreThoseOfCRI(t *testing.T) {
	r := removedRuntime(t, filepath.Join(folder(t), "docker.sock"), docker.Type, time.Now())
	r.results.states[docker.Type] = runtime.Health{Info: runtime.Info{Name: "docker"}}
	if err := r.open(local.Candidate{Type: cri.Type, Name: "containerd", Path: filepath.Join(folder(t), "containerd.sock")}); err != nil {
		t.Fatal(err)
	}
	r.results.states["containerd"] = runtime.Health{Info: runtime.Info{Name: "containerd"}}
	if states, _ := r.Current(); len(states) != 2 || states[0].Name != "containerd" {
		t.Errorf("Current() = %+v, want containerd first, which came later", states)
	}
	r.candidates = nil // the order is configured
	if states, _ := r.Current(); len(states) != 2 || states[0].Name != "docker" {
		t.Errorf("Current() = %+v, want the order of those who are configured", states)
	}
}

// If a runtime sends no events, others poll. They must stop when it is removed.
func TestEventsOfARemovedRuntimeAreNotAwaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := opened(t)
		fake := runtimetest.NewFake(runtimetest.Options{Name: "docker"})
		if err := r.set.Add(fake); err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		reported := map[string]bool{}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			done <- r.Watch(ctx, func(runtime.Event) {}, func(name string, blind bool) {
				mu.Lock()
				defer mu.Unlock()
				reported[name] = blind
			})
		}()
		expect := func(want bool) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if blind, is := reported["docker"]; !is || blind != want {
				t.Errorf("blind = %t, want %t", blind, want)
			}
		}
		time.Sleep(streamSteady)
		expect(false)
		r.set.Remove("docker")
		_ = fake.Close()
		expect(true)
		time.Sleep(Interval + time.Second)
		expect(false)
		cancel()
		<-done
	})
}
