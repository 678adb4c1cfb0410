//go:build integration

package e2e_test

import (
	"context"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"hostler.io/hostler/test/lab"
)

// webImage is the image of pods.
const webImage = "docker.io/library/web:1"

// critical marks a pod that stops last.
var critical = map[string]string{"hostler.io/critical": "true"}

// pod runs a pod of one container, until the test ends.
func pod(t testing.TB, name string, labels map[string]string, grace time.Duration, command []string) *lab.Pod {
	t.Helper()
	return podOf(t, lab.ImageSpec{Names: []string{webImage}}, name, labels, grace, command)
}

// podOf is pod with an image that it pulls.
func podOf(t testing.TB, image lab.ImageSpec, name string, labels map[string]string, grace time.Duration, command []string) *lab.Pod {
	t.Helper()
	_, err := containerd.Pull(t.Context(), image)
	check(t, err)
	p, err := containerd.RunPod(t.Context(), lab.PodSpec{
		Name: name, Labels: labels, Grace: grace,
		Containers: []lab.ContainerSpec{{Name: "main", Image: image.Names[0], Command: command, Ready: "ready"}},
	})
	check(t, err)
	t.Cleanup(func() {
		// An agent that has just ended may still have a call in progress.
		eventually(t, "pod "+name+" is removed", func() bool { return containerd.RemovePod(context.Background(), p) == nil })
	})
	return p
}

// endsOnUSR1 returns the command of a container that records SIGTERM, and that only endAsked ends, with
// code 3: a test decides how long it takes.
func endsOnUSR1() []string {
	return []string{"sh", "-c", "trap 'echo asked' TERM; trap 'exit 3' USR1; echo ready; while :; do sleep 86400 & wait $!; done"}
}

// awaitAsked waits until a pod's container of endsOnUSR1 has got SIGTERM.
func awaitAsked(t testing.TB, p *lab.Pod) {
	t.Helper()
	eventually(t, p.Name+" has got SIGTERM", func() bool {
		log, err := os.ReadFile(mainOf(t, p).LogPath)
		check(t, err)
		return strings.Contains(string(log), "asked")
	})
}

// endAsked ends a pod's container of endsOnUSR1 once it has got SIGTERM.
func endAsked(t testing.TB, p *lab.Pod) {
	t.Helper()
	awaitAsked(t, p)
	reply, err := containerd.Runtime.ContainerStatus(t.Context(), &cri.ContainerStatusRequest{ContainerId: p.Containers["main"], Verbose: true})
	check(t, err)
	check(t, syscall.Kill(processOf(t, reply.Info), syscall.SIGUSR1))
}

// mainOf returns CRI's status of a pod's container.
func mainOf(t testing.TB, p *lab.Pod) *cri.ContainerStatus {
	t.Helper()
	status, err := containerd.Container(t.Context(), p.Containers["main"])
	check(t, err)
	return status
}

// ended returns when a pod's container ended, and its exit code.
func ended(t testing.TB, p *lab.Pod) (at time.Time, code int32) {
	t.Helper()
	status, err := containerd.AwaitExit(t.Context(), p.Containers["main"])
	check(t, err)
	return time.Unix(0, status.FinishedAt), status.ExitCode
}

// untouched checks that a pod's container runs unchanged.
func untouched(t testing.TB, p *lab.Pod, before *cri.ContainerStatus) {
	t.Helper()
	now := mainOf(t, p)
	if now.State != cri.ContainerState_CONTAINER_RUNNING || now.StartedAt != before.StartedAt {
		t.Errorf("container of pod %s is %v since %d, want it to run since %d", p.Name, now.State, now.StartedAt, before.StartedAt)
	}
}

// stopNow requests to kill a pod's container.
func stopNow(p *lab.Pod) *cri.StopContainerRequest {
	return &cri.StopContainerRequest{ContainerId: p.Containers["main"]}
}
