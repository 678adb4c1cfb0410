//go:build integration

package docker_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/docker"
	"hostler.io/hostler/runtime/local"
	"hostler.io/hostler/test/lab"
)

// dockerd dies while a container is stopping, and restarts. The stop must wait for that, and must
// not send the signal twice.
func TestAStopOutlivesDockerd(t *testing.T) { onEachDocker(t, testStopOutlives) }

func testStopOutlives(t *testing.T, o lab.DockerOptions) {
	o.LiveRestore = true
	_, d := startDocker(t, o)
	d.AddImage(t, image)
	const program = "trap 'echo heard' TERM; trap 'exit 0' USR1; echo ready; while :; do sleep 86400 & wait $!; done"
	id, err := d.Run(t.Context(), lab.DockerContainer{Name: "web", Image: image, Command: []string{"sh", "-c", program}, Ready: "ready"})
	check(t, err)
	var sent atomic.Int32
	asked, lost := make(chan struct{}), make(chan struct{}, 1)
	r, err := docker.New(docker.Options{Endpoint: d.Endpoint, Timeouts: local.Timeouts{Query: patience / 2}, Observe: func(method string, _ time.Duration, err error) {
		switch {
		case method == "ContainerKill":
			if sent.Add(1) == 1 {
				close(asked)
			}
		case method == "ContainerWait" && errors.Is(err, runtime.ErrUnavailable):
			select {
			case lost <- struct{}{}:
			default: // already received
			}
		}
	}})
	check(t, err)
	defer r.Close()
	stopped := make(chan error, 1)
	go func() { stopped <- r.StopContainer(t.Context(), runtime.Container{ID: id, Name: "web"}, patience) }()
	<-asked
	check(t, d.Kill())
	select {
	case <-lost:
	case err := <-stopped:
		t.Fatalf("StopContainer() = %v, want it to wait for dockerd", err)
	}
	check(t, d.Start())
	check(t, d.Ready(t.Context()))
	_, err = d.API.ContainerKill(t.Context(), id, client.ContainerKillOptions{Signal: "USR1"})
	check(t, err)
	if err := <-stopped; err != nil {
		t.Errorf("StopContainer() = %v", err)
	}
	c, err := d.API.ContainerInspect(t.Context(), id, client.ContainerInspectOptions{})
	check(t, err)
	if state := c.Container.State; state.Running || state.ExitCode != 0 || sent.Load() != 1 {
		t.Errorf("web is %+v after %d signals, want that it ended by itself after one", state, sent.Load())
	}
}
