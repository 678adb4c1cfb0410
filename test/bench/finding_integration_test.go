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
	// findingSpread is the additional delay of each round, relative to the agent's interval.
	findingSpread = 2 * time.Second
)

// daemon is a runtime that can be killed and started again.
type daemon interface {
	Start() error
	Kill() error
	Ready(context.Context) error
}

// BenchmarkFinding measures the time from the moment at which a runtime answers until the agent's
// status shows it as ready. It does so for a new runtime, and for one that was killed. runc and
// crun, which do not answer, count from their first container.
func BenchmarkFinding(b *testing.B) {
	var t table
	defer t.print(os.Stdout)
	before := load(b)
	containerd := lab.ContainerdFor(b, lab.ContainerdOptions{})
	defer func() { fmt.Println("\non " + machine(b, containerd) + ", before " + before) }()
	// Podman is only looked for after systemd has reported that the host does not shut down.
	lab.LoginFor(b, lab.LoginOptions{})
	docker := lab.DockerFor(b, lab.DockerOptions{})
	measureFinding(b, &t, "docker", docker, "/run/docker.sock", docker.Endpoint)
	podman := lab.PodmanFor(b, lab.PodmanOptions{})
	measureFinding(b, &t, "podman", podman, podman.Endpoint, podman.Endpoint)
	measureFinding(b, &t, "containerd", containerd, knownSocket, containerd.Endpoint) // it runs afterwards
	measureFirst(b, &t, "runc", lab.RuncFor(b, "/run/runc"))
	measureFirst(b, &t, "crun", lab.CrunFor(b, "/run/crun"))
}

// measureFinding does that for a runtime. place is a link to its endpoint, where agents look.
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

// measureFirst does that for a runtime without a service, which is found by its first container.
// The time counts from when the program in the container reports that it runs.
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

// has reports whether a runtime is listed as ready.
func has(s api.Status, name string) bool {
	return slices.ContainsFunc(s.Runtimes, func(r api.Runtime) bool { return r.Name == name && r.Ready })
}
