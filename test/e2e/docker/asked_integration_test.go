//go:build integration

package docker_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/test/lab"
)

// Docker forwards every stop signal; containerd sends it only once in a container's life. Some
// programs abort their work on the second signal.
func TestTheStopSignalIsSentOnce(t *testing.T) {
	d := lab.DockerFor(t, lab.DockerOptions{})
	usualPlace(t, d)
	_, err := d.Load(t.Context(), lab.ImageSpec{Names: []string{image}})
	check(t, err)
	id, err := d.Run(t.Context(), lab.DockerContainer{
		Name: "stubborn", Image: image, Ready: "ready", StopTimeout: 10 * time.Second,
		Command: []string{"sh", "-c", "trap 'echo asked' TERM; echo ready; while :; do sleep 86400 & wait $!; done"},
	})
	check(t, err)
	manager, err := lab.StartNotify(2)
	check(t, err)
	t.Cleanup(func() { check(t, manager.Close()) })
	login := lab.LoginFor(t, lab.LoginOptions{})
	a := newAgent(t, "runtimes: [{type: docker, endpoint: /run/docker.sock}]\nshutdown: {gracePeriod: 40s, gracePeriodCriticalPods: 5s}\n", "docker")
	a.manager = manager
	a.run()
	a.await("the guard is armed", func(s api.Status) bool { return s.Shutdown.State == shutdown.Armed })
	check(t, login.Reboot(t.Context()))
	check(t, d.AwaitOutput(t.Context(), id, "asked"))
	// The first stop does not wait for the disk. Before the request is there, the next agent cannot know of it.
	eventually(t, "the request is on the disk", func() bool {
		text, err := os.ReadFile(filepath.Join(a.folder, "state", "shutdown.json"))
		return err == nil && strings.Contains(string(text), `"asked":{"`+id)
	})
	a.end(syscall.SIGKILL)
	a.run()
	s := a.await("the drain is over", func(s api.Status) bool { return s.Shutdown.State == shutdown.Released })
	text, err := d.Output(t.Context(), id)
	check(t, err)
	if n := strings.Count(text, "asked"); n != 1 {
		t.Errorf("the container was sent the stop signal %d times, want once, although the agent was killed meanwhile", n)
	}
	if r := s.Shutdown.Current; r == nil || len(r.Pods) != 1 || r.Pods[0].Outcome != journal.Killed {
		t.Errorf("record = %+v, want one pod, killed when its grace was over", r)
	}
}
