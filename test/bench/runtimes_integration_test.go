//go:build integration

package bench_test

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/test/lab"
)

const (
	runtimeRounds     = 3
	usualContainers   = 20 // of containerd
	usualImages       = 500
	runtimeContainers = 10 // of each other runtime
	runtimeImages     = 20 // of each runtime that has images
	memorySamples     = 12 // in a minute: the heap grows and shrinks
)

// BenchmarkRuntimes measures the cost of each additional runtime for an idle agent, compared with
// containerd alone in the same round.
func BenchmarkRuntimes(b *testing.B) {
	var t table
	defer t.print(os.Stdout)
	before := load(b)
	containerd := lab.ContainerdFor(b, lab.ContainerdOptions{})
	defer func() { fmt.Println("\non " + machine(b, containerd) + ", before " + before) }()
	lab.LoginFor(b, lab.LoginOptions{})

	alone := inhabitContainerd(b, containerd)
	further := []peer{inhabitDocker(b), inhabitPodman(b), inhabitRunc(b)}
	anonymous, processor := make([]figure, len(further)), make([]figure, len(further))
	for i, n := range further {
		anonymous[i] = figure{name: n.name + " beside containerd: anonymous memory", unit: "MB", target: 2}
		processor[i] = figure{name: n.name + " beside containerd: CPU in a minute", unit: "s", target: 0.03}
	}
	of := func(name string) []figure {
		return []figure{{name: name + ": anonymous memory", unit: "MB"}, {name: name + ": PSS", unit: "MB"}, {name: name + ": CPU in a minute", unit: "s"}}
	}
	base, whole := of("containerd alone"), of("all four")
	defer func() { // even if it fails
		for _, figures := range [][]figure{base, anonymous, processor, whole} {
			for _, f := range figures {
				if len(f.samples) > 0 {
					t.add(f)
				}
			}
		}
	}()
	for range runtimeRounds {
		least := idleBeside(b, alone)
		least.addTo(base)
		for i, n := range further {
			c := idleBeside(b, alone, n)
			anonymous[i].samples, processor[i].samples = append(anonymous[i].samples, c.anonymous-least.anonymous), append(processor[i].samples, c.ran-least.ran)
		}
		idleBeside(b, append([]peer{alone}, further...)...).addTo(whole)
	}
}

// idleCost is an agent's memory, in megabytes, and its processor time in a minute, in seconds.
type idleCost struct{ anonymous, pss, ran float64 }

// addTo adds the cost to the figures.
func (c idleCost) addTo(figures []figure) {
	for i, sample := range []float64{c.anonymous, c.pss, c.ran} {
		figures[i].samples = append(figures[i].samples, sample)
	}
}

// peer is a runtime with containers.
type peer struct {
	name, kind, endpoint string
	environ              []string // environment variables with which an agent can run its program
}

func inhabitContainerd(b *testing.B, c *lab.Containerd) peer {
	b.Helper()
	for i := range usualImages {
		_, err := c.Pull(b.Context(), lab.ImageSpec{Names: []string{imageName(i)}})
		check(b, err)
	}
	for i := range usualContainers {
		_, err := c.RunPod(b.Context(), lab.PodSpec{Name: fmt.Sprintf("web-%d", i), Containers: []lab.ContainerSpec{{Name: "main", Image: imageName(i), Ready: "ready"}}})
		check(b, err)
	}
	return peer{name: "containerd", kind: "cri", endpoint: c.Endpoint}
}

func inhabitDocker(b *testing.B) peer {
	b.Helper()
	d := lab.DockerFor(b, lab.DockerOptions{})
	for i := range runtimeImages {
		id, err := d.Load(b.Context(), lab.ImageSpec{Names: []string{imageName(i)}})
		check(b, err)
		if i < runtimeContainers {
			_, err = d.Run(b.Context(), lab.DockerContainer{Name: fmt.Sprintf("web-%d", i), Image: id, Command: lab.ServeFor(0), Ready: "ready"})
			check(b, err)
		}
	}
	return peer{name: "docker", kind: "docker", endpoint: d.Endpoint}
}

func inhabitPodman(b *testing.B) peer {
	b.Helper()
	p := lab.PodmanFor(b, lab.PodmanOptions{Activated: true})
	for i := range runtimeImages {
		id, err := p.Load(b.Context(), lab.ImageSpec{Names: []string{imageName(i)}})
		check(b, err)
		if i < runtimeContainers {
			_, err = p.Run(b.Context(), lab.PodmanContainer{Name: fmt.Sprintf("web-%d", i), Image: id, Command: lab.ServeFor(0), Ready: "ready"})
			check(b, err)
		}
	}
	return peer{name: "podman", kind: "podman", endpoint: "/run/podman/podman.sock"}
}

func inhabitRunc(b *testing.B) peer {
	b.Helper()
	r := lab.RuncFor(b, "")
	for i := range runtimeContainers {
		check(b, r.Run(b.Context(), lab.RuncContainer{ID: fmt.Sprintf("web-%d", i), Command: lab.ServeFor(0), Ready: "ready"}))
	}
	return peer{name: "runc", kind: "runc", endpoint: r.Root, environ: r.Environ()}
}

// idleBeside returns the cost of a new agent in an idle minute with these runtimes. Memory is the
// median.
func idleBeside(b *testing.B, runtimes ...peer) idleCost {
	b.Helper()
	var list, environ []string
	for _, n := range runtimes {
		list = append(list, fmt.Sprintf("{type: %s, endpoint: %q}", n.kind, n.endpoint))
		environ = append(environ, n.environ...)
	}
	a := startAgentWith(b, true, "runtimes: ["+strings.Join(list, ", ")+"]\n", environ...)
	defer a.end(syscall.SIGTERM)
	a.await("the guard is armed, and all containers are known", func(s api.Status) bool {
		return s.Shutdown.State == shutdown.Armed && s.ContainerGC.Containers >= usualContainers+runtimeContainers*(len(runtimes)-1) && s.ImageGC.LastRun != nil
	})
	time.Sleep(settling)
	anonymous, pss, before := figure{}, figure{}, a.processorSeconds()
	for range memorySamples {
		time.Sleep(idleWindow / memorySamples)
		memory := a.memory()
		anonymous.samples, pss.samples = append(anonymous.samples, memory["Anonymous"]/megabyte), append(pss.samples, memory["Pss"]/megabyte)
	}
	return idleCost{anonymous.median(), pss.median(), a.processorSeconds() - before}
}
