//go:build integration

package bench_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/test/lab"
)

const (
	findingRounds = 5
	// findingSpread is how much later in the agent's rhythm each round is than the one before.
	findingSpread = 2 * time.Second
)

// daemon is a runtime that can be killed and started again.
type daemon interface {
	Start() error
	Kill() error
	Ready(context.Context) error
}

// BenchmarkFinding times an agent from the moment at which a runtime answers to that at which
// its status has it ready: one that it has never seen, and then the same after it was killed.
// runc and crun, which do not answer, count from their first container.
func BenchmarkFinding(b *testing.B) {
	var t table
	defer t.print(os.Stdout)
	before := load(b)
	containerd := lab.ContainerdFor(b, lab.ContainerdOptions{})
	defer func() { fmt.Println("\non " + machine(b, containerd) + ", before " + before) }()
	// Podman is looked for once systemd has said that the host does not go down.
	lab.LoginFor(b, lab.LoginOptions{})
	docker := lab.DockerFor(b, lab.DockerOptions{})
	measureFinding(b, &t, "docker", docker, "/run/docker.sock", docker.Endpoint)
	podman := lab.PodmanFor(b, lab.PodmanOptions{})
	measureFinding(b, &t, "podman", podman, podman.Endpoint, podman.Endpoint)
	measureFinding(b, &t, "containerd", containerd, knownSocket, containerd.Endpoint) // it ends running
	measureFirst(b, &t, "runc", lab.RuncFor(b, "/run/runc"))
	measureFirst(b, &t, "crun", lab.CrunFor(b, "/run/crun"))
}

// measureFinding does so with one whose socket leads to an endpoint from where agents look.
func measureFinding(b *testing.B, into *table, name string, d daemon, place, endpoint string) {
	b.Helper()
	if place != endpoint {
		check(b, errors.Join(os.MkdirAll(filepath.Dir(place), 0o755), os.Symlink(strings.TrimPrefix(endpoint, "unix://"), place)))
		defer func() { check(b, os.Remove(place)) }()
	}
	first := figure{name: name + " answers, to status has it ready: never seen", unit: "s", target: 10}
	again := figure{name: name + " answers, to status has it ready: killed and restarted", unit: "s", target: 10}
	for round := range findingRounds {
		check(b, d.Kill())
		a := startAgent(b, true)
		a.await("an agent without a runtime", func(s api.Status) bool { return !has(s, name) })
		for _, f := range []*figure{&first, &again} {
			time.Sleep(time.Duration(round) * findingSpread)
			check(b, errors.Join(d.Start(), d.Ready(b.Context())))
			answers := time.Now()
			a.await(name+" is ready", func(s api.Status) bool { return has(s, name) })
			f.samples = append(f.samples, time.Since(answers).Seconds())
			if f == &first {
				check(b, d.Kill())
				a.await("the agent misses "+name, func(s api.Status) bool { return !has(s, name) })
			}
		}
		a.end(syscall.SIGTERM)
	}
	into.add(first)
	into.add(again)
}

// measureFirst does so with one that nobody serves, and that is found by its first container:
// from when the program in that says that it runs.
func measureFirst(b *testing.B, into *table, name string, r *lab.Runc) {
	b.Helper()
	r.Setenv(b)
	f := figure{name: name + "'s first container runs, to status has it ready", unit: "s", target: 10}
	for round := range findingRounds {
		a := startAgent(b, true)
		a.await("an agent without "+name, func(s api.Status) bool { return !has(s, name) })
		time.Sleep(time.Duration(round) * findingSpread)
		id := fmt.Sprintf("web-%d", round)
		check(b, r.Run(b.Context(), lab.RuncContainer{ID: id, Command: lab.ServeFor(0), Ready: "ready"}))
		runs := time.Now()
		a.await(name+" is ready", func(s api.Status) bool { return has(s, name) })
		f.samples = append(f.samples, time.Since(runs).Seconds())
		a.end(syscall.SIGTERM)
		check(b, r.Do(b.Context(), "delete", "--force", id))
	}
	into.add(f)
}

// has tells whether a runtime is listed as ready.
func has(s api.Status, name string) bool {
	return slices.ContainsFunc(s.Runtimes, func(r api.Runtime) bool { return r.Name == name && r.Ready })
}
