//go:build integration

package docker_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/test/lab"
)

// runPodman starts a pod, whose second container needs its first, and a critical container outside
// the pod. Podman would restart all of them if they just ended.
func runPodman(t *testing.T, p *lab.Podman) {
	t.Helper()
	_, err := p.Load(t.Context(), lab.ImageSpec{Names: []string{image}})
	check(t, err)
	_, err = p.MakePod(t.Context(), "shop", nil)
	check(t, err)
	run := func(c lab.PodmanContainer) {
		t.Helper()
		c.Image, c.Command, c.Ready, c.Restart, c.StopTimeout = image, lab.ServeFor(time.Second), "ready", "always", 10*time.Minute
		_, err := p.Run(t.Context(), c)
		check(t, err)
	}
	run(lab.PodmanContainer{Name: "db", Pod: "shop"})
	run(lab.PodmanContainer{Name: "web", Pod: "shop", Flags: []string{"--requires", "db"}})
	run(lab.PodmanContainer{Name: "dns", Labels: map[string]string{"hostler.io/critical": "true"}})
}

// ends returns when containers have ended, by name. All of them must have ended by themselves, and
// must not run again.
func ends(t *testing.T, p *lab.Podman, names ...string) map[string]time.Time {
	t.Helper()
	ended := map[string]time.Time{}
	for _, name := range names {
		text, err := p.Command(t.Context(), "container", "inspect", "--format", "{{json .State}}", name)
		check(t, err)
		var state struct {
			Status     string
			ExitCode   int
			FinishedAt time.Time
		}
		check(t, json.Unmarshal([]byte(text), &state))
		if state.Status != "exited" || state.ExitCode != 0 {
			t.Errorf("%s is %+v, want it to have ended by itself, for good", name, state)
		}
		ended[name] = state.FinishedAt
	}
	return ended
}

// A Podman that is not configured, and whose service does not run, is found. Its pods are planned,
// and stopped in order when the host shuts down.
func TestAPodmanHostGoesDownInOrder(t *testing.T) {
	p := lab.PodmanFor(t, lab.PodmanOptions{Activated: true})
	runPodman(t, p)
	login := lab.LoginFor(t, lab.LoginOptions{})
	a := startAgentOf(t, "runtimes: auto\nshutdown: {gracePeriod: 20m, gracePeriodCriticalPods: 10m}\n", "podman")
	a.await("the guard is armed", func(s api.Status) bool { return s.Shutdown.State == shutdown.Armed })
	for _, command := range [][]string{{"ps"}, {"shutdown", "plan"}} {
		if output := a.hostler(command...); !strings.Contains(output, "shop") || !strings.Contains(output, "dns") || strings.Contains(output, "infra") {
			t.Errorf("hostler %v prints %s, want shop and dns, and no infra container", command, output)
		}
	}
	check(t, login.Reboot(t.Context()))
	s := a.await("the drain is over", func(s api.Status) bool { return s.Shutdown.State == shutdown.Released })

	ended := ends(t, p, "db", "web", "dns")
	if ended["db"].Before(ended["web"].Add(time.Second)) || ended["dns"].Before(ended["db"]) { // each takes a second to end
		t.Errorf("ended at %v, want web before db, which it needs, and then dns, which is critical", ended)
	}
	r := s.Shutdown.Current
	if r == nil {
		r = s.Shutdown.Last
	}
	if r == nil || !r.Graceful || len(r.Pods) != 2 || slices.ContainsFunc(r.Pods, func(p journal.PodRecord) bool { return p.Outcome != journal.Stopped }) {
		t.Errorf("record = %+v, want shop and dns stopped gracefully", r)
	}
}

// A person drains a Podman that is named.
func TestAPodmanIsDrainedManually(t *testing.T) {
	p := lab.PodmanFor(t, lab.PodmanOptions{})
	runPodman(t, p)
	a := startAgentOf(t, "runtimes: [{type: podman, endpoint: /run/podman/podman.sock}]\n", "podman")
	if output := a.hostler("drain", "--all"); !strings.Contains(output, "shop") || !strings.Contains(output, "dns") {
		t.Errorf("hostler drain prints %s, want shop and dns", output)
	}
	ends(t, p, "db", "web", "dns")
}

// Podman's service ends without requests. hostler sends it none while nothing happens.
func TestAnIdlePodmanGetsNoRequests(t *testing.T) {
	p := lab.PodmanFor(t, lab.PodmanOptions{Activated: true, Idle: time.Second})
	runPodman(t, p)
	a := startAgentOf(t, "runtimes: auto\nimageGC: {interval: 1s}\ncontainerGC: {interval: 1s}\n", "podman")
	// checkAll returns when the collectors have checked again.
	checkAll := func() {
		t.Helper()
		var last api.Status
		a.await("the first runs", func(s api.Status) bool { last = s; return s.ImageGC.LastRun != nil && s.ContainerGC.LastRun != nil })
		a.await("another run", func(s api.Status) bool {
			return s.ImageGC.LastRun.StartedAt.After(last.ImageGC.LastRun.StartedAt) && s.ContainerGC.LastRun.StartedAt.After(last.ContainerGC.LastRun.StartedAt)
		})
	}
	eventually(t, "Podman is idle", func() bool {
		before := p.Starts()
		for range 3 {
			checkAll()
		}
		for _, command := range []string{"status", "ps", "images"} {
			a.hostler(command)
		}
		return p.Starts() == before && p.PID() == 0
	})
	_, err := p.Command(t.Context(), "rm", "--force", "--time", "0", "dns")
	check(t, err)
	eventually(t, "the removal is seen", func() bool { return !strings.Contains(a.hostler("ps"), "dns") })
}
