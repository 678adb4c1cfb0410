//go:build integration

package docker_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/moby/moby/client"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/test/lab"
)

// TestWhatADrainStoppedIsNotCollected also requests the collection of everything unused, and
// follows the hints of hostler doctor: the person who drained the host wants to have it back
// unchanged.
func TestWhatADrainStoppedIsNotCollected(t *testing.T) {
	h := &workload{T: t, docker: lab.DockerFor(t, lab.DockerOptions{}), ids: map[string]string{}}
	usualPlace(t, h.docker)
	_, err := h.docker.Load(t.Context(), lab.ImageSpec{Names: []string{image}})
	check(t, err)
	h.run(lab.DockerContainer{Name: "kept", Restart: "unless-stopped"})
	ends := func(name string) {
		t.Helper()
		h.run(lab.DockerContainer{Name: name, Command: []string{"sh", "-c", "echo ready"}, Ready: "ready"})
		eventually(t, name+" has ended", func() bool { _, running := h.started(name); return !running })
	}
	ends("ended")
	there := func() string { return strings.Join(h.names(), " ") }

	a := startAgent(t, "containerGC: {minimumAge: 0s, interval: 1s}\n")
	a.await("Docker is ready", func(s api.Status) bool { return len(s.Runtimes) == 1 && s.Runtimes[0].Ready })
	a.hostler("drain", "--all")
	if plan := a.hostler("gc", "plan", "--containers", "--all-unused"); !strings.Contains(plan, "drained") {
		t.Errorf("hostler gc plan prints %s, want it to keep one that was drained", plan)
	}
	a.hostler("gc", "run", "--containers", "--all-unused")
	if got := there(); got != "kept" {
		t.Errorf("after a drain and a collection of all that is unused there are %q, want what the drain has stopped alone", got)
	}

	// As doctor's hint says, but without a week of waiting.
	ends("endedagain")
	s := a.await("the status says which request collects dead containers", func(s api.Status) bool { return s.ContainerGC.OnRequest != nil && s.ContainerGC.OnRequest.Unused == 1 })
	setting := s.ContainerGC.OnRequest.Setting
	a.prints("doctor", setting)
	a.prints("gc plan --containers", "not-managed: removed on request only")
	a.end(syscall.SIGTERM)
	conf := filepath.Join(a.folder, "conf.d")
	check(t, os.Mkdir(conf, 0o755))
	check(t, os.WriteFile(filepath.Join(conf, "collect.yaml"), []byte(strings.ReplaceAll(setting, "168h", "1s")+"\n"), 0o644))
	a.run()
	eventually(t, "the dead container is collected", func() bool { return there() == "kept" })
}

// TestUncordonListsWhatAllDrainsStopped also reboots: the second drain finds the containers of the
// first one stopped, and Docker starts none of them.
func TestUncordonListsWhatAllDrainsStopped(t *testing.T) {
	h := &workload{T: t, docker: lab.DockerFor(t, lab.DockerOptions{}), ids: map[string]string{}}
	usualPlace(t, h.docker)
	_, err := h.docker.Load(t.Context(), lab.ImageSpec{Names: []string{image}})
	check(t, err)
	h.run(lab.DockerContainer{Name: "web", Restart: "unless-stopped"})
	h.run(lab.DockerContainer{Name: "dns", Restart: "unless-stopped", Labels: map[string]string{"hostler.io/critical": "true"}})
	ready := func(a *agent) {
		a.await("Docker is ready", func(s api.Status) bool { return len(s.Runtimes) == 1 && s.Runtimes[0].Ready })
	}
	a := startAgent(t, "")
	ready(a)
	prints := func(want string, args ...string) {
		t.Helper()
		if output := a.hostler(args...); !strings.Contains(output, want) {
			t.Errorf("hostler %s prints %s, want %q", strings.Join(args, " "), output, want)
		}
	}
	prints("docker start web", "drain")
	prints("docker start dns web", "drain", "--all")
	a.end(syscall.SIGTERM)
	a.nextBoot()
	a.run()
	ready(a)
	prints("stopped by earlier drains of this maintenance: web", "ps", "--last-shutdown")
	prints("docker start dns web", "uncordon")
	_, err = h.docker.API.ContainerStart(t.Context(), h.ids["web"], client.ContainerStartOptions{})
	check(t, err)
	eventually(t, "web, which runs again, is not listed", func() bool { return strings.HasSuffix(a.hostler("uncordon"), "docker start dns") })
}
