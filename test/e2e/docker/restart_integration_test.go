//go:build integration

package docker_test

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/test/lab"
)

// nextBoot changes the kernel's boot ID with a file mounted over it, as on a host that is a
// container. For this the unit needs a drop-in (docs/howto/service-rights.md).
func (a *agent) nextBoot() {
	a.Helper()
	const place = "/proc/sys/kernel/random/boot_id"
	id := filepath.Join(a.TempDir(), "boot_id")
	check(a.T, os.WriteFile(id, []byte("5f3c9f0e-7f0b-4c4e-9d53-000000000002\n"), 0o444))
	check(a.T, syscall.Mount(id, place, "", syscall.MS_BIND, ""))
	a.Cleanup(func() { check(a.T, syscall.Unmount(place, 0)) })
	a.dropIn = append(a.dropIn, "ProtectKernelTunables=no")
}

// workload is a Docker with containers, by name.
type workload struct {
	*testing.T
	docker *lab.Docker
	ids    map[string]string
}

func (h *workload) run(c lab.DockerContainer) {
	h.Helper()
	c.Image = image
	if c.Command == nil {
		c.Command, c.Ready = lab.ServeFor(0), "ready"
	}
	id, err := h.docker.Run(h.Context(), c)
	check(h.T, err)
	h.ids[c.Name] = id
}

// names returns the names of all containers.
func (h *workload) names() (names []string) {
	h.Helper()
	list, err := h.docker.API.ContainerList(h.Context(), client.ContainerListOptions{All: true})
	check(h.T, err)
	for _, c := range list.Items {
		names = append(names, strings.TrimPrefix(c.Names[0], "/"))
	}
	slices.Sort(names)
	return names
}

// started returns when the latest run of a container began, and whether it still runs.
func (h *workload) started(name string) (at time.Time, running bool) {
	h.Helper()
	c, err := h.docker.API.ContainerInspect(h.Context(), h.ids[name], client.ContainerInspectOptions{})
	check(h.T, err)
	at, err = time.Parse(time.RFC3339Nano, c.Container.State.StartedAt)
	check(h.T, err)
	return at, c.Container.State.Running
}

// crashing returns the state of that container, and how often it was restarted.
func (h *workload) crashing() (state *container.State, times int) {
	h.Helper()
	c, err := h.docker.API.ContainerInspect(h.Context(), h.ids["crashing"], client.ContainerInspectOptions{})
	check(h.T, err)
	return c.Container.State, c.Container.RestartCount
}

func (h *workload) stop(name string) {
	h.Helper()
	_, err := h.docker.API.ContainerStop(h.Context(), h.ids[name], client.ContainerStopOptions{})
	check(h.T, err)
}

// furnish runs a shop of five services, and other containers.
func furnish(t *testing.T) *workload {
	t.Helper()
	h := &workload{T: t, docker: lab.DockerFor(t, lab.DockerOptions{}), ids: map[string]string{}}
	usualPlace(t, h.docker)
	_, err := h.docker.Load(t.Context(), lab.ImageSpec{Names: []string{image}})
	check(t, err)
	const policy = "unless-stopped"
	needs := map[string][]string{"api": {"db", "cache"}, "web": {"api"}, "proxy": {"web"}}
	for _, name := range []string{"db", "cache", "api", "web", "proxy"} {
		c := lab.DockerContainer{Project: "shop", Name: name, DependsOn: needs[name], Restart: policy}
		if name == "cache" {
			c.Restart = "always"
		}
		h.run(c)
	}
	h.run(lab.DockerContainer{Name: "dns", Restart: policy, Labels: map[string]string{"hostler.io/critical": "true"}})
	h.run(lab.DockerContainer{Name: "job"})
	h.run(lab.DockerContainer{Name: "ending", Restart: "on-failure"}) // it ends successfully
	h.run(lab.DockerContainer{Name: "failing", Restart: "on-failure", Command: []string{"sh", "-c", "trap 'exit 1' TERM; echo ready; while :; do sleep 86400 & wait $!; done"}, Ready: "ready"})
	h.run(lab.DockerContainer{Name: "crashing", Command: lab.ExitWith(1), Restart: policy})
	eventually(t, "dockerd waits for seconds before it starts what crashes once more", func() bool {
		state, times := h.crashing()
		return state.Restarting && times > 5
	})
	for _, name := range []string{"before", "meanwhile", "removed"} {
		h.run(lab.DockerContainer{Name: name, Restart: policy})
	}
	return h
}

func settled(s api.Status) bool {
	return len(s.Shutdown.Restarts) > 0 && !slices.ContainsFunc(s.Shutdown.Restarts, func(r journal.Restart) bool { return r.Outcome == "" })
}

// Containers that would run after a reboot without hostler also run with it: started once, in the
// reverse order of the shutdown, and none that a person has stopped.
func TestADockerHostComesUpAsItWentDown(t *testing.T) {
	h := furnish(t)
	h.stop("before")
	login := lab.LoginFor(t, lab.LoginOptions{})
	a := startAgent(t, "runtimes: auto\nshutdown: {gracePeriod: 20m, gracePeriodCriticalPods: 10m}\n")
	a.await("the guard is armed", func(s api.Status) bool { return s.Shutdown.State == shutdown.Armed })
	plan := a.hostler("shutdown", "plan")
	for _, part := range []string{"by hostler: 8 containers (api, crashing, db, dns, meanwhile, proxy, removed, web)", ": 3 containers (cache, ending, failing)", "1 container (job)"} {
		if !strings.Contains(plan, part) {
			t.Errorf("hostler shutdown plan prints %s, want %q in it", plan, part)
		}
	}
	// A container that ends by itself after the drain has listed it, and before it is stopped, counts
	// as stopped by a person.
	eventually(t, "crashing has just crashed", func() bool {
		state, times := h.crashing()
		at, err := time.Parse(time.RFC3339Nano, state.FinishedAt)
		return err == nil && state.Restarting && times > 7 && time.Since(at) < 2*time.Second // the next start is 26 s after it
	})
	check(t, login.Reboot(t.Context()))
	a.await("the drain is over", func(s api.Status) bool { return s.Shutdown.State == shutdown.Released })
	a.end(syscall.SIGKILL)
	for name := range h.ids {
		if _, running := h.started(name); running {
			t.Fatalf("%s runs after the shutdown", name)
		}
	}

	// The host boots: dockerd starts its containers, and a person is faster than hostler.
	check(t, errors.Join(h.docker.Restart(t.Context()), login.RestartLogind(t.Context())))
	login.Manager.SetProperty("SystemState", "running")
	a.nextBoot()
	_, err := h.docker.API.ContainerStart(t.Context(), h.ids["meanwhile"], client.ContainerStartOptions{})
	check(t, err)
	h.stop("meanwhile")
	_, err = h.docker.API.ContainerRemove(t.Context(), h.ids["removed"], client.ContainerRemoveOptions{})
	check(t, err)
	delete(h.ids, "removed")
	booted := time.Now()
	a.run()
	s := a.await("all is started again", settled)

	at, dockerds := map[string]time.Time{}, []string{"cache", "failing"} // which dockerd has started
	for name := range h.ids {
		began, running := h.started(name)
		at[name] = began
		want := !slices.Contains([]string{"job", "ending", "before", "meanwhile"}, name)
		if name == "crashing" {
			running = began.After(booted) // it runs at times
		}
		if running != want || want && !slices.Contains(dockerds, name) && began.Before(booted) {
			t.Errorf("%s runs: %t, since %v; want %t", name, running, began, want)
		}
	}
	order := []string{"dns", "db", "api", "web", "proxy"}
	if !slices.IsSortedFunc(order, func(a, b string) int { return at[a].Compare(at[b]) }) {
		t.Errorf("started at %v, want in the order %v", at, order)
	}
	outcomes := map[journal.RestartOutcome]int{}
	for _, r := range s.Shutdown.Restarts {
		if r.Name == "" {
			t.Errorf("the restart %+v has no name", r)
		}
		outcomes[r.Outcome]++
	}
	if want := map[journal.RestartOutcome]int{journal.Restarted: 6, journal.RunsAnyway: 2, journal.LeftStopped: 4}; !maps.Equal(outcomes, want) {
		t.Errorf("outcomes = %v, want %v: %+v", outcomes, want, s.Shutdown.Restarts)
	}
	output := a.hostler("ps", "--last-shutdown")
	for _, part := range []string{"restarted: dns", `not started by hostler: job (its restart policy is "no")`} {
		if !strings.Contains(output, part) {
			t.Errorf("hostler ps --last-shutdown prints %s, want %q in it", output, part)
		}
	}

	// It starts them only once: a container that a person stops later stays stopped.
	h.stop("web")
	a.end(syscall.SIGTERM)
	a.run()
	a.await("nothing is pending", settled)
	if _, running := h.started("web"); running {
		t.Error("web runs, which a person has stopped")
	}
}

// Containers that a cancelled shutdown has stopped are started again, except those without a
// restart policy.
func TestContainersOfACancelledShutdownAreStartedAgain(t *testing.T) {
	for name, inTheMiddle := range map[string]bool{"after the drain": false, "in the middle of it": true} {
		t.Run(name, func(t *testing.T) {
			h := &workload{T: t, docker: lab.DockerFor(t, lab.DockerOptions{}), ids: map[string]string{}}
			usualPlace(t, h.docker)
			_, err := h.docker.Load(t.Context(), lab.ImageSpec{Names: []string{image}})
			check(t, err)
			for name, policy := range map[string]string{"unless": "unless-stopped", "always": "always", "job": "no"} {
				h.run(lab.DockerContainer{Name: name, Restart: policy})
			}
			if inTheMiddle {
				h.run(lab.DockerContainer{Name: "stubborn", Restart: "always", Command: lab.IgnoreTerm(), Ready: "ready", StopTimeout: 10 * time.Minute})
			}
			login := lab.LoginFor(t, lab.LoginOptions{})
			a := startAgent(t, "shutdown: {gracePeriod: 20m}\n")
			a.await("the guard is armed", func(s api.Status) bool { return s.Shutdown.State == shutdown.Armed })
			check(t, login.Reboot(t.Context()))
			a.await("all are stopped that end", func(s api.Status) bool {
				for _, name := range []string{"unless", "always", "job"} {
					if _, running := h.started(name); running {
						return false
					}
				}
				return inTheMiddle && s.Shutdown.State == shutdown.Draining || s.Shutdown.State == shutdown.Released
			})
			check(t, login.RestartLogind(t.Context())) // which makes it forget the shutdown
			login.Manager.SetProperty("SystemState", "running")
			a.await("all is started again", func(s api.Status) bool {
				outcomes := map[string]journal.RestartOutcome{}
				for _, r := range s.Shutdown.Restarts {
					outcomes[r.ID] = r.Outcome
				}
				return s.Shutdown.State == shutdown.Armed && outcomes[h.ids["unless"]] == journal.Restarted && outcomes[h.ids["always"]] == journal.Restarted && outcomes[h.ids["job"]] != ""
			})
			for name := range h.ids {
				if _, running := h.started(name); running != (name != "job") {
					t.Errorf("%s runs: %t, want %t", name, running, name != "job")
				}
			}
		})
	}
}
