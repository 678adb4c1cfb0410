//go:build integration

package runc_test

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/local"
	"hostler.io/hostler/runtime/runc"
	"hostler.io/hostler/runtime/runtimetest"
	"hostler.io/hostler/test/lab"
	"hostler.io/hostler/test/machine/debian"
)

// patience bounds waits for events that must occur.
const patience = 5 * time.Minute

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// labDriver is the Driver of a real runc or crun.
type labDriver struct{ *lab.Runc }

func (d labDriver) Abilities() runtimetest.Abilities { return runtimetest.Abilities{Bare: true} }

func (d labDriver) AddImage(t testing.TB, _ ...string) {
	t.Helper()
	t.Fatal("there are no images")
}

func (d labDriver) AddPinnedImage(t testing.TB, tag string) {
	t.Helper()
	d.AddImage(t, tag)
}

func (d labDriver) RunPod(t testing.TB, _, _ string, programs ...runtimetest.Program) {
	t.Helper()
	for _, p := range programs {
		c := lab.RuncContainer{ID: p.Name, Annotations: runtimetest.LargeLabels(), Ready: "ready"}
		c.Annotations["program"] = p.Name
		switch p.Does {
		case runtimetest.EndsOnTERM:
			c.Command = lab.ServeFor(0)
		case runtimetest.IgnoresTERM:
			c.Command = lab.IgnoreTerm()
		case runtimetest.EndsAtOnce:
			c.Command, c.Ready = lab.ExitWith(int(runtimetest.EndCode)), ""
		case runtimetest.NeverStarted:
			c.Command, c.Ready, c.Unstarted = lab.ServeFor(0), "", true
		default:
			t.Fatalf("program %q: behaviour %d is unknown", p.Name, p.Does)
		}
		check(t, d.Run(t.Context(), c))
	}
}

func (d labDriver) Hang(t testing.TB) (resume func()) {
	t.Helper()
	t.Fatal("there is nobody who could hang")
	return nil
}

// Crash removes the state root.
func (d labDriver) Crash(t testing.TB) (restart func()) {
	t.Helper()
	check(t, os.Rename(d.Root, d.Root+".away"))
	return func() { check(t, os.Rename(d.Root+".away", d.Root)) }
}

// programs start a lab with each program.
var programs = map[string]func(testing.TB, string) *lab.Runc{"runc": lab.RuncFor, "crun": lab.CrunFor}

// bed returns a new state root and an adapter for it.
func bed(t *testing.T, program func(testing.TB, string) *lab.Runc) (*runc.Runtime, labDriver) {
	t.Helper()
	d := labDriver{program(t, "")}
	d.Setenv(t)
	for tries := 0; ; tries++ {
		r, err := runc.New(runc.Options{Endpoint: d.Root, Timeouts: local.Timeouts{Query: runtimetest.Query(t, 30*time.Second)}})
		check(t, err)
		// A program that did not print its version within 2 s is run again only after minutes, but a new
		// adapter runs it at once.
		if info, err := r.Info(t.Context()); err == nil && info.Version != "" || tries == 10 {
			t.Cleanup(func() { check(t, r.Close()) })
			return r, d
		}
		check(t, r.Close())
	}
}

func TestRuncConforms(t *testing.T) {
	runtimetest.Record(t, "runc", *update, func(t *testing.T) (runtime.Runtime, runtimetest.Driver) { return bed(t, lab.RuncFor) })
}

func TestCrunConforms(t *testing.T) {
	runtimetest.Record(t, "crun", *update, func(t *testing.T) (runtime.Runtime, runtimetest.Driver) { return bed(t, lab.CrunFor) })
}

func TestRuncOfDebian13Conforms(t *testing.T) { ofDebian13(t, "runc", "1.1.15", (*lab.Lab).RuncFor) }

func TestCrunOfDebian13Conforms(t *testing.T) { ofDebian13(t, "crun", "1.21", (*lab.Lab).CrunFor) }

func ofDebian13(t *testing.T, kind, version string, program func(*lab.Lab, testing.TB, string) *lab.Runc) {
	tree, err := debian.PrepareRuntimes(t.Context(), slog.New(slog.DiscardHandler))
	check(t, err)
	runtimetest.Record(t, kind, *update, func(t *testing.T) (runtime.Runtime, runtimetest.Driver) {
		r, d := bed(t, func(t testing.TB, root string) *lab.Runc { return program(lab.TreeFor(t, tree), t, root) })
		if info, err := r.Info(t.Context()); err != nil || info.Name != kind || !strings.HasPrefix(info.Version, version) {
			t.Fatalf("Info() = %+v, %v, want %s %s", info, err, kind, version)
		}
		return r, d
	})
}

// with runs a test with real containers of each program.
func with(t *testing.T, test func(t *testing.T, r *runc.Runtime, d labDriver)) {
	for name, program := range programs {
		t.Run(name, func(t *testing.T) {
			r, d := bed(t, program)
			test(t, r, d)
		})
	}
}

// container returns the listed container of that name.
func container(t *testing.T, r *runc.Runtime, id string) runtime.Container {
	t.Helper()
	pods, err := r.Pods(t.Context())
	check(t, err)
	for _, p := range pods {
		if p.ID == id {
			return p.Containers[0]
		}
	}
	t.Fatalf("Pods() = %v, want %s in it", pods, id)
	return runtime.Container{}
}

// The image's stop signal is sent.
func TestAContainerIsStoppedByItsOwnSignal(t *testing.T) {
	with(t, func(t *testing.T, r *runc.Runtime, d labDriver) {
		for id, signal := range map[string]string{"named": "SIGUSR1", "short": "USR1", "numbered": "10"} {
			check(t, d.Run(t.Context(), lab.RuncContainer{
				ID: id, Ready: "ready", Annotations: map[string]string{"org.opencontainers.image.stopSignal": signal},
				Command: []string{"sh", "-c", "trap '' TERM; trap 'echo heard; exit 0' USR1; echo ready; while :; do sleep 86400 & wait $!; done"},
			}))
			c := container(t, r, id)
			if c.Restart != runtime.RestartElsewhere {
				t.Errorf("%s says of who starts it again %v, want that nobody here does", id, c.Restart)
			}
			check(t, r.StopContainer(t.Context(), c, patience))
			if text, err := d.Output(id); err != nil || !strings.Contains(text, "heard") {
				t.Errorf("%s printed %q, %v, want that it received its signal", id, text, err)
			}
		}
	})
}

// A paused container does not handle signals: it is resumed, and ends by itself.
func TestAPausedContainerEndsByItself(t *testing.T) {
	with(t, func(t *testing.T, r *runc.Runtime, d labDriver) {
		check(t, d.Run(t.Context(), lab.RuncContainer{ID: "web", Command: lab.ServeFor(0), Ready: "ready"}))
		check(t, d.Do(t.Context(), "pause", "web"))
		c := container(t, r, "web")
		if c.State != runtime.Running {
			t.Errorf("a paused container is %v, want it running", c.State)
		}
		check(t, r.StopContainer(t.Context(), c, patience))
		if text, err := d.Output("web"); err != nil || !strings.Contains(text, "ended") {
			t.Errorf("web printed %q, %v, want that it ended by itself", text, err)
		}
	})
}

func TestAPausedContainerIsKilled(t *testing.T) {
	with(t, func(t *testing.T, r *runc.Runtime, d labDriver) {
		check(t, d.Run(t.Context(), lab.RuncContainer{ID: "web", Command: lab.IgnoreTerm(), Ready: "ready"}))
		check(t, d.Do(t.Context(), "pause", "web"))
		check(t, r.StopContainer(t.Context(), container(t, r, "web"), 0))
		if c := container(t, r, "web"); c.State != runtime.Exited {
			t.Errorf("container is %v, want %v", c.State, runtime.Exited)
		}
	})
}

// Without its own PID namespace, a container's other processes outlive its first process. They are
// in its cgroup, and are killed with it.
func TestNothingOutlivesAContainerWithoutPIDsOfItsOwn(t *testing.T) {
	for name, grace := range map[string]time.Duration{"killed": 0, "asked": patience} {
		t.Run(name, func(t *testing.T) {
			with(t, func(t *testing.T, r *runc.Runtime, d labDriver) {
				const child = "(trap '' TERM; while :; do sleep 86400; done) & trap 'exit 0' TERM; echo ready; while :; do sleep 86400 & wait $!; done"
				check(t, d.Run(t.Context(), lab.RuncContainer{ID: "web", HostPIDs: true, Command: []string{"sh", "-c", child}, Ready: "ready"}))
				check(t, d.Run(t.Context(), lab.RuncContainer{ID: "other", HostPIDs: true, Command: lab.IgnoreTerm(), Ready: "ready"}))
				check(t, r.StopContainer(t.Context(), container(t, r, "web"), grace))
				if left, err := d.Processes("web"); err != nil || len(left) != 0 {
					t.Errorf("processes of web = %v, %v, want none left", left, err)
				}
				if c := container(t, r, "other"); c.State != runtime.Running {
					t.Errorf("the other container is %v, want it running", c.State)
				}
			})
		})
	}
}

// A container that was created but not started is about to be started by its creator.
func TestACreatedContainerIsLeftToItsMaker(t *testing.T) {
	with(t, func(t *testing.T, r *runc.Runtime, d labDriver) {
		check(t, d.Run(t.Context(), lab.RuncContainer{ID: "web", Command: lab.ServeFor(0), Unstarted: true}))
		c := container(t, r, "web")
		if c.State != runtime.Created {
			t.Errorf("container is %v, want %v", c.State, runtime.Created)
		}
		check(t, r.StopContainer(t.Context(), c, 0))
		check(t, d.Do(t.Context(), "start", "web"))
		if c = container(t, r, "web"); c.State != runtime.Running {
			t.Errorf("container is %v once it is started, want %v", c.State, runtime.Running)
		}
		// But it is deleted on request.
		check(t, d.Run(t.Context(), lab.RuncContainer{ID: "never", Command: lab.ServeFor(0), Unstarted: true}))
		check(t, r.RemoveContainer(t.Context(), container(t, r, "never")))
		if pods, err := r.Pods(t.Context()); err != nil || len(pods) != 1 {
			t.Errorf("Pods() = %v, %v, want web alone", pods, err)
		}
	})
}

// Podman and CRI-O have their containers in the same root.
func TestContainersOfManagersAreLeftToThem(t *testing.T) {
	with(t, func(t *testing.T, r *runc.Runtime, d labDriver) {
		var finder runc.Finder
		for i, theirs := range []struct{ key, value, bundle string }{
			{"io.container.manager", "libpod", "overlay-containers/theirs0/userdata"},
			{"io.container.manager", "cri-o", "overlay-containers/theirs1/userdata"},
			{"io.kubernetes.cri.container-type", "sandbox", "io.containerd.runtime.v2.task/k8s.io/theirs2"},
		} {
			check(t, d.Run(t.Context(), lab.RuncContainer{
				ID: fmt.Sprint("theirs", i), Annotations: map[string]string{theirs.key: theirs.value}, Bundle: theirs.bundle, Command: lab.ServeFor(0), Ready: "ready",
			}))
		}
		if pods, err := r.Pods(t.Context()); err != nil || len(pods) != 0 {
			t.Errorf("Pods() = %v, %v, want none", pods, err)
		}
		if finder.HasContainers(d.Root) {
			t.Error("HasContainers() of a root with only others' containers = true")
		}
		theirs := runtime.Container{ID: "theirs0", Name: "theirs0"} // any creation time
		check(t, r.StopContainer(t.Context(), theirs, 0))
		check(t, r.StopPod(t.Context(), runtime.Pod{ID: theirs.ID, Name: theirs.Name}))
		check(t, r.RemoveContainer(t.Context(), theirs))
		if left, err := d.Processes("theirs0"); err != nil || len(left) == 0 {
			t.Errorf("processes of Podman's container = %v, %v, want them alive", left, err)
		}
		check(t, d.Run(t.Context(), lab.RuncContainer{ID: "mine", Command: lab.ServeFor(0), Ready: "ready"}))
		if pods, err := r.Pods(t.Context()); err != nil || len(pods) != 1 || !finder.HasContainers(d.Root) {
			t.Errorf("Pods() = %v, %v, HasContainers() = %t, want mine", pods, err, finder.HasContainers(d.Root))
		}
	})
}

// A new container of the same name is another one, whose stop or removal nobody has requested.
func TestAContainerIsNotItsSuccessor(t *testing.T) {
	with(t, func(t *testing.T, r *runc.Runtime, d labDriver) {
		run := func(unstarted bool) runtime.Container {
			t.Helper()
			check(t, d.Run(t.Context(), lab.RuncContainer{ID: "web", Command: []string{"sh", "-c", "sleep 86400"}, Unstarted: unstarted}))
			return container(t, r, "web")
		}
		first := run(false)
		check(t, r.StopContainer(t.Context(), first, 0))
		check(t, r.RemoveContainer(t.Context(), first))
		second := run(true)
		first.State = runtime.Exited
		check(t, r.RemoveContainer(t.Context(), first))
		// Even if its creation time is unknown.
		if err := r.RemoveContainer(t.Context(), runtime.Container{ID: "web", State: runtime.Exited}); !errors.Is(err, runtime.ErrInUse) {
			t.Errorf("RemoveContainer() of one that is about to be started = %v, want %v", err, runtime.ErrInUse)
		}
		if c := container(t, r, "web"); c.State != runtime.Created {
			t.Fatalf("the second container is %v, want %v", c.State, runtime.Created)
		}
		check(t, d.Do(t.Context(), "start", "web"))
		check(t, r.StopContainer(t.Context(), first, 0))
		check(t, r.StopPod(t.Context(), runtime.Pod{ID: "web", CreatedAt: first.CreatedAt}))
		if c := container(t, r, "web"); c.State != runtime.Running {
			t.Errorf("the second container is %v, want it running", c.State)
		}
		check(t, r.StopPod(t.Context(), runtime.Pod{ID: "web", CreatedAt: second.CreatedAt}))
		if c := container(t, r, "web"); c.State != runtime.Exited {
			t.Errorf("the second container is %v once it is meant, want %v", c.State, runtime.Exited)
		}
	})
}

// A cgroup is killed only if it contains no foreign processes, whoever manages these and whatever
// their files contain.
func TestASharedCgroupIsNotKilled(t *testing.T) {
	for name, hostPIDs := range map[string]bool{"PIDs of its own": false, "the host's PIDs": true} {
		t.Run(name, func(t *testing.T) {
			with(t, func(t *testing.T, r *runc.Runtime, d labDriver) {
				others := map[string]map[string]string{"other": nil, "torn": nil, "theirs": {"io.container.manager": "libpod"}}
				for id, annotations := range others {
					check(t, d.Run(t.Context(), lab.RuncContainer{ID: id, HostPIDs: hostPIDs, Cgroup: id, Annotations: annotations, Bundle: id + "/userdata", Command: lab.IgnoreTerm(), Ready: "ready"}))
				}
				for other := range others {
					web := "beside-" + other
					check(t, d.Run(t.Context(), lab.RuncContainer{ID: web, HostPIDs: hostPIDs, Cgroup: other, Command: lab.IgnoreTerm(), Ready: "ready"}))
				}
				tear(t, d, "torn")
				for other := range others {
					web := "beside-" + other
					check(t, r.StopContainer(t.Context(), container(t, r, web), 0))
					if c := container(t, r, web); c.State != runtime.Exited {
						t.Errorf("%s is %v, want %v", web, c.State, runtime.Exited)
					}
					if left, err := d.Processes(other); err != nil || len(left) == 0 {
						t.Errorf("processes of %s = %v, %v, want them alive", other, left, err)
					}
				}
			})
		})
	}
}

// tear truncates a container's files.
func tear(t *testing.T, d labDriver, id string) {
	t.Helper()
	for _, file := range []string{"state.json", "status"} {
		path := filepath.Join(d.Root, id, file)
		text, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		check(t, err)
		check(t, os.WriteFile(path, text[:len(text)/2], 0o600))
	}
}

// A process in the cgroup of a container with its own PID namespace does not belong to the
// container if it is outside that namespace.
func TestProcessesOutsideAPIDNamespaceAreLeftAlone(t *testing.T) {
	with(t, func(t *testing.T, r *runc.Runtime, d labDriver) {
		check(t, d.Run(t.Context(), lab.RuncContainer{ID: "web", Command: lab.IgnoreTerm(), Ready: "ready"}))
		s := newSleeper(t)
		check(t, d.Join("web", s.cmd.Process.Pid))
		check(t, r.StopContainer(t.Context(), container(t, r, "web"), 0))
		check(t, s.cmd.Process.Signal(unix.SIGTERM))
		if err := s.ended(); err == nil || err.Error() != "signal: terminated" {
			t.Errorf("the process in the cgroup ended with %v, want by the test's own SIGTERM", err)
		}
	})
}
