//go:build integration

package orphans_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/cri"
	"hostler.io/hostler/runtime/orphans"
	"hostler.io/hostler/test/lab"
)

const image = "docker.io/library/web:1"

// orphanage is a real containerd that will be killed, and the Stopper that replaces it.
type orphanage struct {
	*lab.Containerd
	in   *orphans.Stopper
	pods []runtime.Pod
	id   string // of the only container
}

// adopted runs a script in a container, which prints "ready", and calls Adopt.
func adopted(t *testing.T, script string) *orphanage {
	t.Helper()
	c := lab.ContainerdFor(t, lab.ContainerdOptions{})
	_, err := c.Pull(t.Context(), lab.ImageSpec{Names: []string{image}})
	must(t, err)
	pod, err := c.RunPod(t.Context(), lab.PodSpec{Name: "web", Containers: []lab.ContainerSpec{{Name: "main", Image: image, Ready: "ready", Command: []string{"sh", "-c", script}}}})
	must(t, err)
	r, err := cri.New(cri.Options{Endpoint: c.Endpoint, Logger: slog.New(slog.DiscardHandler)})
	must(t, err)
	t.Cleanup(func() { _ = r.Close() })
	in, err := orphans.New(orphans.Options{
		Runtime: r, Root: filepath.Join(filepath.Dir(strings.TrimPrefix(c.Endpoint, "unix://")), "runc/k8s.io"), Log: slog.New(slog.DiscardHandler),
		Member: func(string) bool { return true }, StopSignal: nil,
	})
	must(t, err)
	pods, err := in.Pods(t.Context())
	must(t, err)
	if len(pods) != 1 || len(pods[0].Containers) != 1 {
		t.Fatalf("Pods() = %+v, want one of one container", pods)
	}
	in.Adopt(t.Context(), pods, nil, nil)
	return &orphanage{c, in, pods, pod.Containers["main"]}
}

// exitCode returns the container's exit code according to containerd after its restart.
func (o *orphanage) exitCode(t *testing.T) int32 {
	t.Helper()
	o.in.Release()
	must(t, o.Start())
	must(t, o.Ready(t.Context()))
	status, err := o.AwaitExit(t.Context(), o.id)
	must(t, err)
	return status.ExitCode
}

// Ten times what the pipes of the container and its shim can hold.
func TestOutputIsDiscardedOnceContainerdIsGone(t *testing.T) {
	o := adopted(t, `trap 'i=0; while [ $i -lt 20000 ]; do echo "line $i of what it has to say before it ends, and more of it"; i=$((i+1)); done; exit 7' TERM
		echo ready; while :; do sleep 86400 & wait $!; done`)
	must(t, o.Kill())
	must(t, o.in.StopContainer(t.Context(), o.pods[0].Containers[0], time.Minute))
	if got := o.exitCode(t); got != 7 {
		t.Errorf("the container ended with code %d, want 7, by which it ends by itself", got)
	}
}

func TestAContainerWhoseContainerdStopsInAStopIsSignalledOnce(t *testing.T) {
	o := adopted(t, `trap 'n=$((n+1)); echo asked; [ $n -lt 2 ] || exit 9' TERM
		echo ready; while :; do sleep 86400 & wait $!; done`)
	stopped := make(chan error, 1)
	go func() { stopped <- o.in.StopContainer(t.Context(), o.pods[0].Containers[0], 5*time.Second) }()
	logs := filepath.Join(filepath.Dir(strings.TrimPrefix(o.Endpoint, "unix://")), "logs/pods/*/main/0.log")
	must(t, o.Await(t.Context(), func(context.Context) error {
		files, err := filepath.Glob(logs)
		if err != nil || len(files) != 1 {
			return fmt.Errorf("%s: %v, %v", logs, files, err)
		}
		text, err := os.ReadFile(files[0])
		if err == nil && !strings.Contains(string(text), "asked") {
			err = fmt.Errorf("the container has logged %q", text)
		}
		return err
	}))
	must(t, o.Kill())
	must(t, <-stopped)
	if got := o.exitCode(t); got != 137 {
		t.Errorf("the container ended with code %d, want 137, by which it is killed; 9 means that it was asked twice", got)
	}
}
