//go:build integration

package docker_test

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/test/lab"
)

// stable is a Podman with containers, by name.
type stable struct {
	*testing.T
	runtime *lab.Podman
	names   []string
}

// run creates a container that runs until it is sent the stop signal.
func (s *stable) run(c lab.PodmanContainer) {
	s.Helper()
	c.Image, c.Command, c.Ready = image, lab.ServeFor(0), "ready"
	_, err := s.runtime.Run(s.Context(), c)
	check(s.T, err)
	s.names = append(s.names, c.Name)
}

func (s *stable) podman(args ...string) {
	s.Helper()
	_, err := s.runtime.Command(s.Context(), args...)
	check(s.T, err)
}

// started returns when the latest run of a container began, and whether it still runs.
func (s *stable) started(name string) (at time.Time, running bool) {
	s.Helper()
	text, err := s.runtime.Command(s.Context(), "container", "inspect", "--format", "{{json .State}}", name)
	check(s.T, err)
	var state struct {
		Running   bool
		StartedAt time.Time
	}
	check(s.T, json.Unmarshal([]byte(text), &state))
	return state.StartedAt, state.Running
}

// furnishStable runs a pod of three containers that need each other and a fourth, and other
// containers.
func furnishStable(t *testing.T) *stable {
	t.Helper()
	s := &stable{T: t, runtime: lab.PodmanFor(t, lab.PodmanOptions{Activated: true})}
	_, err := s.runtime.Load(t.Context(), lab.ImageSpec{Names: []string{image}})
	check(t, err)
	_, err = s.runtime.MakePod(t.Context(), "shop", nil)
	check(t, err)
	const policy = "unless-stopped"
	s.run(lab.PodmanContainer{Name: "db", Pod: "shop", Restart: policy})
	s.run(lab.PodmanContainer{Name: "api", Pod: "shop", Restart: policy, Flags: []string{"--requires", "db"}})
	s.run(lab.PodmanContainer{Name: "web", Pod: "shop", Restart: policy, Flags: []string{"--requires", "api"}})
	s.run(lab.PodmanContainer{Name: "cron", Pod: "shop", Restart: policy}) // after db, when no container of the pod runs yet
	s.run(lab.PodmanContainer{Name: "dns", Restart: policy, Labels: map[string]string{"hostler.io/critical": "true"}})
	s.run(lab.PodmanContainer{Name: "always", Restart: "always"})
	s.run(lab.PodmanContainer{Name: "failing", Restart: "on-failure"}) // it ends successfully
	s.run(lab.PodmanContainer{Name: "job"})
	s.run(lab.PodmanContainer{Name: "quadlet", Restart: policy, Labels: map[string]string{"PODMAN_SYSTEMD_UNIT": "quadlet.service"}})
	for _, name := range []string{"before", "meanwhile", "removed"} {
		s.run(lab.PodmanContainer{Name: name, Restart: policy})
	}
	return s
}

// After a boot, hostler starts the containers that it has stopped and that Podman does not start
// itself: once, in the reverse order of the shutdown. It does not start containers that a person
// has stopped, or that belong to a unit.
func TestAPodmanHostComesUpAsItWentDown(t *testing.T) {
	s := furnishStable(t)
	s.podman("stop", "before")
	login := lab.LoginFor(t, lab.LoginOptions{})
	login.Manager.SetUnit("podman-restart.service", map[string]any{"ActiveState": "inactive", "UnitFileState": "disabled"})
	login.Manager.SetUnit("quadlet.service", map[string]any{"ActiveState": "inactive", "UnitFileState": "generated"})
	a := startAgentOf(t, "runtimes: auto\nshutdown: {gracePeriod: 20m, gracePeriodCriticalPods: 10m}\n", "podman")
	a.await("the guard is armed", func(s api.Status) bool { return s.Shutdown.State == shutdown.Armed })
	plan := a.hostler("shutdown", "plan")
	for _, part := range []string{"by hostler: 8 containers (always, api, cron, db, dns, meanwhile, removed, web)", "if their units are enabled: 1 container (quadlet)", "because of their restart policy: 2 containers (failing, job)"} {
		if !strings.Contains(plan, part) {
			t.Errorf("hostler shutdown plan prints %s, want %q in it", plan, part)
		}
	}
	check(t, login.Reboot(t.Context()))
	a.await("the drain is over", func(s api.Status) bool { return s.Shutdown.State == shutdown.Released })
	a.end(syscall.SIGKILL)
	for _, name := range s.names {
		if _, running := s.started(name); running {
			t.Fatalf("%s runs after the shutdown", name)
		}
	}

	// The host boots, and a person is faster than hostler.
	check(t, errors.Join(s.runtime.Boot(t.Context()), login.RestartLogind(t.Context())))
	login.Manager.SetProperty("SystemState", "running")
	a.nextBoot()
	s.podman("start", "meanwhile")
	s.podman("stop", "meanwhile")
	s.podman("rm", "removed")
	s.names = slices.DeleteFunc(s.names, func(name string) bool { return name == "removed" })
	booted := time.Now()
	a.run()
	output := a.await("all is started again", settled)

	at := map[string]time.Time{}
	for _, name := range s.names {
		began, running := s.started(name)
		at[name] = began
		want := slices.Contains([]string{"db", "api", "web", "cron", "dns", "always"}, name)
		if running != want || want && began.Before(booted) {
			t.Errorf("%s runs: %t, since %v; want %t", name, running, began, want)
		}
	}
	order := []string{"dns", "db", "api", "web"}
	if !slices.IsSortedFunc(order, func(a, b string) int { return at[a].Compare(at[b]) }) {
		t.Errorf("started at %v, want in the order %v", at, order)
	}
	outcomes := map[journal.RestartOutcome]int{}
	for _, r := range output.Shutdown.Restarts {
		outcomes[r.Outcome]++
	}
	if want := map[journal.RestartOutcome]int{journal.Restarted: 6, journal.LeftStopped: 5}; !maps.Equal(outcomes, want) {
		t.Errorf("outcomes = %v, want %v: %+v", outcomes, want, output.Shutdown.Restarts)
	}
	if output := a.hostler("ps", "--last-shutdown"); !strings.Contains(output, "restarted: dns") {
		t.Errorf("hostler ps --last-shutdown prints %s, want that dns was started again", output)
	}

	// It starts them only once: a container that a person stops later stays stopped.
	s.podman("stop", "always")
	a.end(syscall.SIGTERM)
	a.run()
	a.await("nothing is pending", settled)
	if _, running := s.started("always"); running {
		t.Error("always runs, which a person has stopped")
	}
}

// Containers that a cancelled shutdown has stopped are started again.
func TestPodmanContainersOfACancelledShutdownAreStartedAgain(t *testing.T) {
	s := &stable{T: t, runtime: lab.PodmanFor(t, lab.PodmanOptions{Activated: true})}
	_, err := s.runtime.Load(t.Context(), lab.ImageSpec{Names: []string{image}})
	check(t, err)
	_, err = s.runtime.MakePod(t.Context(), "shop", nil)
	check(t, err)
	s.run(lab.PodmanContainer{Name: "web", Pod: "shop", Restart: "unless-stopped"})
	s.run(lab.PodmanContainer{Name: "always", Restart: "always"})
	s.run(lab.PodmanContainer{Name: "job"})
	login := lab.LoginFor(t, lab.LoginOptions{})
	login.Manager.SetUnit("podman-restart.service", map[string]any{"UnitFileState": "enabled"})
	a := startAgentOf(t, "shutdown: {gracePeriod: 3m}\n", "podman")
	a.await("the guard is armed", func(s api.Status) bool { return s.Shutdown.State == shutdown.Armed })
	if plan := a.hostler("shutdown", "plan"); !strings.Contains(plan, "if their restart policy says so: 1 container (always)") {
		t.Errorf("hostler shutdown plan prints %s, want that Podman decides about always", plan)
	}
	check(t, login.Reboot(t.Context()))
	a.await("the drain is over", func(s api.Status) bool { return s.Shutdown.State == shutdown.Released })
	check(t, login.RestartLogind(t.Context())) // which makes it forget the shutdown
	login.Manager.SetProperty("SystemState", "running")
	a.await("all is started again", func(now api.Status) bool { return now.Shutdown.State == shutdown.Armed && settled(now) })
	for _, name := range s.names {
		if _, running := s.started(name); running != (name != "job") {
			t.Errorf("%s runs: %t, want %t", name, running, name != "job")
		}
	}
}
