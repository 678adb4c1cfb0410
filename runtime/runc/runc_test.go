package runc_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/local"
	"hostler.io/hostler/runtime/runc"
)

func TestAContainerIsListedAsItsFilesHaveIt(t *testing.T) {
	for program, write := range writers {
		t.Run(program, func(t *testing.T) {
			root, s := stateRoot(t), newSleeper(t)
			write(t, root, "web", s.cmd.Process.Pid, s.start)
			must(t, os.MkdirAll(filepath.Join(root, "half-made"), 0o700))
			must(t, os.MkdirAll(filepath.Join(root, ".empty-directory"), 0o700))
			r := open(t, root)
			c := listed(t, r)["web"]
			want, err := time.Parse(time.RFC3339Nano, createdAt)
			must(t, err)
			if c.State != runtime.Running || c.Name != "web" || !c.CreatedAt.Equal(want) || c.Labels["hostler.io/priority"] != "7" || c.Labels["bundle"] != "" || c.Image != "registry.example/web:1" {
				t.Errorf("Pods() = %+v, want web running, with its labels and its image", c)
			}
			if n := len(listed(t, r)); n != 1 {
				t.Errorf("Pods() = %d pods, want web alone", n)
			}
			fifo := filepath.Join(root, "web", "exec.fifo")
			must(t, unix.Mkfifo(fifo, 0o600))
			if c := listed(t, r)["web"]; c.State != runtime.Created {
				t.Errorf("a container that was not started is %v, want %v", c.State, runtime.Created)
			}
			must(t, os.Remove(fifo))
			must(t, s.cmd.Process.Kill())
			_ = s.ended()
			if c := listed(t, r)["web"]; c.State != runtime.Exited || !c.FinishedAt.IsZero() {
				t.Errorf("a dead container is %v since %v, want %v since nobody knows when", c.State, c.FinishedAt, runtime.Exited)
			}
		})
	}
}

func TestAStopSignalsFirst(t *testing.T) {
	for program, write := range writers {
		t.Run(program, func(t *testing.T) {
			root, s := stateRoot(t), newSleeper(t)
			write(t, root, "web", s.cmd.Process.Pid, s.start)
			r := open(t, root)
			done := make(chan error, 1)
			go func() { done <- r.StopContainer(t.Context(), runtime.Container{ID: "web"}, long) }()
			if err := s.ended(); err == nil || err.Error() != "signal: terminated" {
				t.Errorf("web ended with %v, want by SIGTERM", err)
			}
			must(t, <-done)
		})
	}
}

// The author of an image chooses its stop signal.
func TestASignalThatDoesNotExistIsReplaced(t *testing.T) {
	for _, signal := range []string{"12345", "-9", "0", "SIGNONE"} {
		root, s := stateRoot(t), newSleeper(t)
		writeCrun(t, root, "web", s.cmd.Process.Pid, s.start)
		put(t, filepath.Join(root, "web", "config.json"), fmt.Sprintf(`{"annotations":{"org.opencontainers.image.stopSignal":%q},"linux":{"namespaces":[{"type":"pid"}]}}`, signal))
		if err := open(t, root).StopContainer(t.Context(), runtime.Container{ID: "web"}, long); err != nil {
			t.Errorf("StopContainer() with the stop signal %s = %v", signal, err)
			continue
		}
		if err := s.ended(); err == nil || err.Error() != "signal: terminated" {
			t.Errorf("with the stop signal %s, web ended with %v, want by SIGTERM", signal, err)
		}
	}
}

// If another process has the PID now, it is not the container's.
func TestAnotherProcessWithThePIDIsLeftAlone(t *testing.T) {
	for program, write := range writers {
		t.Run(program, func(t *testing.T) {
			root, s := stateRoot(t), newSleeper(t)
			write(t, root, "web", s.cmd.Process.Pid, s.start+1)
			r := open(t, root)
			c := listed(t, r)["web"]
			if c.State != runtime.Exited {
				t.Errorf("container is %v, want %v", c.State, runtime.Exited)
			}
			must(t, r.StopContainer(t.Context(), c, 0))
			must(t, r.StopPod(t.Context(), runtime.Pod{ID: "web", CreatedAt: c.CreatedAt}))
			must(t, s.cmd.Process.Signal(unix.SIGKILL))
			if err := s.ended(); err == nil || err.Error() != "signal: killed" {
				t.Errorf("the process ended with %v, want that the test itself killed it", err)
			}
		})
	}
}

func TestInvalidFilesDoNotAffectOtherContainers(t *testing.T) {
	for name, file := range map[string][2]string{
		"torn":               {"state.json", `{"id":"bad","init_proc`},
		"of another program": {"state.json", `{"ociVersion":"1.0.2","id":"bad","status":"running","pid":1}`},
		"without a start":    {"state.json", `{"init_process_pid":1,"created":"2026-11-20T12:00:00Z"}`},
		"without a time":     {"state.json", `{"init_process_pid":1,"init_process_start":2}`},
		"endless":            {"state.json", `{"init_process_pid":1,"init_process_start":1,"created":"2026-11-20T12:00:00Z"}` + strings.Repeat(" ", 5<<20)},
		"torn, of crun":      {"status", `{"pid":`},
	} {
		t.Run(name, func(t *testing.T) {
			root, s := stateRoot(t), newSleeper(t)
			writeRunc(t, root, "good", s.cmd.Process.Pid, s.start)
			put(t, filepath.Join(root, "bad", "config.json"), "{}")
			put(t, filepath.Join(root, "bad", file[0]), file[1])
			r := open(t, root)
			list := listed(t, r)
			if len(list) != 2 || list["good"].State != runtime.Running || list["bad"].State != runtime.Unknown || list["bad"].CreatedAt.IsZero() {
				t.Errorf("Pods() = %+v, want the good one running, and the bad one of unknown state", list)
			}
			for what, err := range map[string]error{
				"StopContainer": r.StopContainer(t.Context(), list["bad"], 0), "RemoveContainer": r.RemoveContainer(t.Context(), list["bad"]),
			} {
				if !errors.Is(err, runtime.ErrInvalidAnswer) && !errors.Is(err, runtime.ErrTooLarge) {
					t.Errorf("%s() = %v, want the reason why it is not known", what, err)
				}
			}
			writeRunc(t, root, "bad", s.cmd.Process.Pid, s.start) // the complete file
			if list := listed(t, r); list["bad"].State != runtime.Running {
				t.Errorf("container is %v once its files make sense, want %v", list["bad"].State, runtime.Running)
			}
		})
	}
}

// Whoever creates a container chooses how much its files contain.
func TestAContainerWhoseFilesAreTooLargeIsStopped(t *testing.T) {
	for program, write := range writers {
		for name, bundle := range map[string]string{"own": "/b", "of a manager": "/run/x/large/userdata"} {
			t.Run(program+", "+name, func(t *testing.T) {
				root, large, other := stateRoot(t), newSleeper(t), newSleeper(t)
				write(t, root, "large", large.cmd.Process.Pid, large.start)
				write(t, root, "other", other.cmd.Process.Pid, other.start)
				for file, replace := range map[string]*strings.Replacer{
					"state.json":  strings.NewReplacer(`"config":{`, `"config":{"mounts":["bundle=/b","`+strings.Repeat("m", 5<<20)+`"],`, `"bundle=/b"`, `"bundle=`+bundle+`"`),
					"config.json": strings.NewReplacer(`"annotations":{`, `"annotations":{"a":"`+strings.Repeat("m", 5<<20)+`",`),
					"status":      strings.NewReplacer(`"/b"`, `"`+bundle+`"`),
				} {
					path := filepath.Join(root, "large", file)
					if text, err := os.ReadFile(path); err == nil { // a file of this program
						put(t, path, replace.Replace(strings.ReplaceAll(string(text), ",\n\t\t", ",")))
					}
				}
				r := open(t, root)
				others, err := r.ForeignProcesses("other")
				if err != nil || !others[large.cmd.Process.Pid] {
					t.Errorf("foreign processes of another container = %v, %v, want the large one's among them", others, err)
				}
				c, there := listed(t, r)["large"]
				if name == "of a manager" {
					if there {
						t.Errorf("Pods() has %+v, want it left to its manager", c)
					}
					return
				}
				if c.State != runtime.Running {
					t.Errorf("container is %v, want %v", c.State, runtime.Running)
				}
				must(t, r.StopContainer(t.Context(), c, long))
				if err := large.ended(); err == nil || err.Error() != "signal: terminated" {
					t.Errorf("it ended with %v, want by SIGTERM", err)
				}
				if err := r.RemoveContainer(t.Context(), c); !errors.Is(err, runtime.ErrTooLarge) {
					t.Errorf("RemoveContainer() = %v, want that it may have a manager", err)
				}
			})
		}
	}
}

// Whoever creates a container chooses its annotations, and they stay in memory while it exists.
func TestAnnotationsInMemoryAreBounded(t *testing.T) {
	long, many := strings.Repeat("v", 3<<20), make([]string, 10_000)
	for i := range many {
		many[i] = fmt.Sprintf("key %d=%0200d", i, i)
	}
	for program, write := range writers {
		for name, labels := range map[string][]string{
			"one that is long": {"long=" + long}, "many": many, "many of a manager": append(many, "io.container.manager=libpod"),
		} {
			t.Run(program+", "+name, func(t *testing.T) {
				root, s, containers := stateRoot(t), newSleeper(t), 5
				for i := range containers {
					id := fmt.Sprint("c", i)
					write(t, root, id, s.cmd.Process.Pid, s.start)
					annotations := map[string]string{}
					for _, l := range labels {
						key, value, _ := strings.Cut(l, "=")
						annotations[key] = value
					}
					list, err := json.Marshal(labels)
					must(t, err)
					object, err := json.Marshal(annotations)
					must(t, err)
					bundle := "/run/" + id + "/userdata"
					for file, replace := range map[string]*strings.Replacer{
						"state.json":  strings.NewReplacer(`"labels":[`, `"labels":[`+string(list[1:len(list)-1])+",", `"bundle=/b"`, `"bundle=`+bundle+`"`),
						"config.json": strings.NewReplacer(`"annotations":{`, `"annotations":{`+string(object[1:len(object)-1])+","),
						"status":      strings.NewReplacer(`"/b"`, `"`+bundle+`"`),
					} {
						path := filepath.Join(root, id, file)
						if text, err := os.ReadFile(path); err == nil { // a file of this program
							put(t, path, replace.Replace(string(text)))
						}
					}
				}
				r, before := open(t, root), inUse()
				list := listed(t, r)
				if want := name != "many of a manager"; (len(list) == containers) != want || want && list["c0"].Labels["hostler.io/priority"] != "7" {
					t.Fatalf("Pods() has %d containers, the first with %v, want %d: %t, with a priority", len(list), list["c0"].Labels, containers, want)
				}
				clear(list)
				if after := inUse(); after > before+2<<20 {
					t.Errorf("a list of %d containers keeps %d MiB in memory, want less than 2", containers, (after-before)>>20)
				}
				goruntime.KeepAlive(r)
			})
		}
	}
}

// inUse returns how many bytes of memory are in use.
func inUse() uint64 {
	goruntime.GC()
	var m goruntime.MemStats
	goruntime.ReadMemStats(&m)
	return m.HeapAlloc
}

// An image may contain the annotations of managers, but it does not choose the folder.
func TestContainersOfManagersAreFoundByTheirFolder(t *testing.T) {
	const libpod, crio, containerd = "io.container.manager", "io.kubernetes.cri-o.ContainerType", "io.kubernetes.cri.container-type"
	for _, c := range []struct {
		annotation, bundle string
		theirs             bool
	}{
		{libpod, "/var/lib/containers/storage/overlay-containers/web/userdata", true},
		{crio, "/run/containers/storage/overlay-containers/web/userdata", true},
		{containerd, "/run/containerd/io.containerd.runtime.v2.task/k8s.io/web", true},
		{libpod, "/srv/web", false},
		{crio, "/srv/userdata", false},
		{containerd, "/srv/web", false},
		{"own", "/var/lib/containers/storage/overlay-containers/web/userdata", false},
	} {
		for program, write := range writers {
			root, s := stateRoot(t), newSleeper(t)
			write(t, root, "web", s.cmd.Process.Pid, s.start)
			for file, replace := range map[string]*strings.Replacer{
				"state.json":  strings.NewReplacer(`hostler.io/priority=7"`, c.annotation+`=x","bundle=/run/x/web/userdata"`, `bundle=/b"`, "bundle="+c.bundle+`"`),
				"status":      strings.NewReplacer(`"/b"`, `"`+c.bundle+`"`),
				"config.json": strings.NewReplacer("hostler.io/priority", c.annotation),
			} {
				text, err := os.ReadFile(filepath.Join(root, "web", file))
				if err == nil { // a file of this program
					put(t, filepath.Join(root, "web", file), replace.Replace(string(text)))
				}
			}
			if list := listed(t, open(t, root)); (len(list) == 0) != c.theirs {
				t.Errorf("Pods() where %s has %s of bundle %q = %v, want it a manager's: %t", program, c.annotation, c.bundle, list, c.theirs)
			}
		}
	}
}

// A file without annotations says that its container has none.
func TestAContainerWithoutAnnotationsHasNoManager(t *testing.T) {
	root, s := stateRoot(t), newSleeper(t)
	writeCrun(t, root, "web", s.cmd.Process.Pid, s.start)
	status, err := os.ReadFile(filepath.Join(root, "web", "status"))
	must(t, err)
	put(t, filepath.Join(root, "web", "status"), strings.Replace(string(status), `"/b"`, `"/srv/web/userdata"`, 1))
	put(t, filepath.Join(root, "web", "config.json"), `{"ociVersion":"1.0.0"}`)
	if list := listed(t, open(t, root)); len(list) != 1 {
		t.Errorf("Pods() = %v, want the container, which no manager has created", list)
	}
}

// Only its folder shows that a build step belongs to the builder.
func TestBuildStepsBelongToTheBuilder(t *testing.T) {
	for _, c := range []struct {
		id, bundle string
		theirs     bool
	}{
		{"hqy3qw6p4vn2", "/var/lib/docker/buildkit/executor/hqy3qw6p4vn2", true},
		{"hqy3qw6p4vn2", "/var/lib/buildkit/runc-overlayfs/executor/hqy3qw6p4vn2", true},
		{"buildah-buildah1289104221", "/var/tmp/buildah1289104221", true},
		{"web", "/srv/executor/of-web", false},
		{"web", "/srv/web", false},
		{"buildah1", "/srv/buildah1", false},
		{"web", "", false},
	} {
		for program, write := range writers {
			root, s := stateRoot(t), newSleeper(t)
			write(t, root, c.id, s.cmd.Process.Pid, s.start)
			file := filepath.Join(root, c.id, map[string]string{"runc": "state.json", "crun": "status"}[program])
			text, err := os.ReadFile(file)
			must(t, err)
			put(t, file, strings.Replace(string(text), "/b\"", c.bundle+"\"", 1))
			if list := listed(t, open(t, root)); (len(list) == 0) != c.theirs {
				t.Errorf("Pods() where %s has %s of bundle %q = %v, want it the builder's: %t", program, c.id, c.bundle, list, c.theirs)
			}
		}
	}
}

// A container of Podman belongs to Podman, however little its files contain.
func TestAContainerOfAManagerIsIgnoredWhateverItsFilesContain(t *testing.T) {
	root := stateRoot(t)
	put(t, filepath.Join(root, "theirs", "state.json"), `{"init_process_pid":1,"created":"2026-11-20T12:00:00Z","config":{"labels":["io.container.manager=libpod","bundle=/run/theirs/userdata"]}}`)
	r := open(t, root)
	if list := listed(t, r); len(list) != 0 {
		t.Errorf("Pods() = %+v, want none", list)
	}
	theirs := runtime.Container{ID: "theirs"}
	for what, err := range map[string]error{"StopContainer": r.StopContainer(t.Context(), theirs, 0), "RemoveContainer": r.RemoveContainer(t.Context(), theirs)} {
		if err != nil {
			t.Errorf("%s() = %v, want nothing done", what, err)
		}
	}
}

// A call that has nothing to do does not fail.
func TestACallWithNothingToDoSucceeds(t *testing.T) {
	root, s := stateRoot(t), newSleeper(t)
	writeRunc(t, root, "ended", s.cmd.Process.Pid, s.start+1)
	r, err := runc.New(runc.Options{Endpoint: root, Observe: func(method string, _ time.Duration, err error) {
		if err != nil {
			t.Errorf("%s was counted as failed: %v", method, err)
		}
	}})
	must(t, err)
	for _, id := range []string{"ended", "missing"} {
		must(t, r.StopContainer(t.Context(), runtime.Container{ID: id}, 0))
		must(t, r.StopPod(t.Context(), runtime.Pod{ID: id}))
	}
	must(t, r.RemoveContainer(t.Context(), runtime.Container{ID: "missing"}))
}

// The process that started a container is not one of the container's.
func TestAncestorsReachUpToTheFirstProcess(t *testing.T) {
	s := newSleeper(t)
	list := runc.Ancestors("/proc", s.cmd.Process.Pid)
	if len(list) == 0 || list[0] != os.Getpid() || os.Getpid() != 1 && !slices.Contains(list, os.Getppid()) && os.Getppid() != 0 {
		t.Errorf("ancestors = %v, want this process, %d, and those that it has come from, such as %d", list, os.Getpid(), os.Getppid())
	}
}

// The PID of a container that has ended may now belong to a thread of another process, for which no
// descriptor can be opened.
func TestAThreadWithThePIDIsNotTheProcess(t *testing.T) {
	thread := aThread(t)
	for program, write := range writers {
		t.Run(program, func(t *testing.T) {
			root := stateRoot(t)
			write(t, root, "web", thread, 1)
			must(t, open(t, root).StopContainer(t.Context(), runtime.Container{ID: "web"}, 0))
		})
	}
}

// aThread returns the ID of a thread that is not its process's first.
func aThread(t *testing.T) int {
	t.Helper()
	list, err := procfs.AllThreads(os.Getpid())
	must(t, err)
	for _, thread := range list {
		if thread.PID != os.Getpid() {
			return thread.PID
		}
	}
	t.Fatal("this process has a single thread")
	return 0
}

func TestARootThatOthersCouldWriteIsRefused(t *testing.T) {
	root, s := stateRoot(t), newSleeper(t)
	writeRunc(t, root, "web", s.cmd.Process.Pid, s.start)
	must(t, os.Chmod(root, 0o722))
	r := open(t, root)
	info, err := r.Info(t.Context())
	if err != nil || info.Ready || !strings.Contains(info.Message, "chmod go-w") {
		t.Errorf("Info() = %+v, %v, want it not ready, and a hint", info, err)
	}
	if pods, err := r.Pods(t.Context()); err == nil {
		t.Errorf("Pods() = %v, want an error", pods)
	}
	if err := r.StopContainer(t.Context(), runtime.Container{ID: "web"}, 0); err == nil {
		t.Error("StopContainer() = nil, want an error")
	}
	must(t, os.Chmod(root, 0o711)) // the mode that runc sets
	if c := listed(t, r)["web"]; c.State != runtime.Running {
		t.Errorf("container is %v, want %v", c.State, runtime.Running)
	}
}

func TestAMissingRootIsAnEmptyOne(t *testing.T) {
	r := open(t, filepath.Join(t.TempDir(), "not", "made", "yet"))
	if pods, err := r.Pods(t.Context()); err != nil || len(pods) != 0 {
		t.Errorf("Pods() = %v, %v, want none", pods, err)
	}
	if info, err := r.Info(t.Context()); err != nil || !info.Ready || !info.Imageless {
		t.Errorf("Info() = %+v, %v, want it ready and without images", info, err)
	}
	gone := runtime.Container{ID: "web"}
	for what, err := range map[string]error{
		"StopContainer": r.StopContainer(t.Context(), gone, 0), "StopPod": r.StopPod(t.Context(), runtime.Pod{ID: "web"}), "RemoveContainer": r.RemoveContainer(t.Context(), gone),
	} {
		if err != nil {
			t.Errorf("%s() of what is not there = %v", what, err)
		}
	}
}

func TestIDsDoNotLeadElsewhere(t *testing.T) {
	root, s := stateRoot(t), newSleeper(t)
	writeRunc(t, filepath.Dir(root), "web", s.cmd.Process.Pid, s.start)
	r := open(t, root)
	for _, id := range []string{"../web", "..", ".", "web/../../web"} {
		if err := r.StopContainer(t.Context(), runtime.Container{ID: id}, 0); err != nil {
			t.Errorf("StopContainer(%q) = %v, want that there is none", id, err)
		}
	}
	if err := r.StopContainer(t.Context(), runtime.Container{}, 0); err == nil {
		t.Error("StopContainer() without an ID = nil, want an error")
	}
	must(t, s.cmd.Process.Signal(unix.SIGKILL))
	if err := s.ended(); err.Error() != "signal: killed" {
		t.Errorf("the process ended with %v, want that the test itself killed it", err)
	}
}

func TestAClosedRuntimeIsUnavailable(t *testing.T) {
	r, err := runc.New(runc.Options{Endpoint: stateRoot(t)})
	must(t, err)
	must(t, r.Close())
	if _, err := r.Pods(t.Context()); !errors.Is(err, runtime.ErrUnavailable) {
		t.Errorf("Pods() = %v, want %v", err, runtime.ErrUnavailable)
	}
}

func TestEndpoints(t *testing.T) {
	for endpoint, wrong := range map[string]string{"unix:///run/runc": "is a socket", "/run/containerd/runc/k8s.io": "used by containerd"} {
		if _, err := runc.New(runc.Options{Endpoint: endpoint}); err == nil || !strings.Contains(err.Error(), wrong) {
			t.Errorf("New(%q) = %v, want that it %s", endpoint, err, wrong)
		}
	}
	if _, err := runc.New(runc.Options{Endpoint: "/run/crun", Timeouts: local.Timeouts{Remove: -1}}); err == nil {
		t.Error("New() with a negative timeout = nil, want an error")
	}
	r, err := runc.New(runc.Options{Endpoint: "/run/crun/"})
	if err != nil || r.Name() != "crun" || r.Endpoint() != "/run/crun" {
		t.Errorf("New(/run/crun/) = %v, %v, want crun at /run/crun", r, err)
	}
}

func TestAFinderSkipsRootsWithoutContainers(t *testing.T) {
	var f runc.Finder
	root, s := stateRoot(t), newSleeper(t)
	inhabited := func(want bool, what string) {
		t.Helper()
		if got := f.HasContainers(root); got != want {
			t.Errorf("HasContainers() of a root %s = %t, want %t", what, got, want)
		}
	}
	if f.HasContainers(root + ".none") {
		t.Error("HasContainers() of no root at all = true")
	}
	inhabited(false, "without a container")
	put(t, filepath.Join(root, "podman", "state.json"), `{"init_process_pid":1,"init_process_start":1,"created":"2026-11-20T12:00:00Z","config":{"labels":["io.container.manager=libpod","bundle=/run/podman/userdata"]}}`)
	put(t, filepath.Join(root, "torn", "state.json"), `{`)
	inhabited(false, "of Podman's")
	writeRunc(t, root, "web", s.cmd.Process.Pid, s.start)
	inhabited(true, "with one of runc's own")
	must(t, os.RemoveAll(filepath.Join(root, "web")))
	inhabited(false, "that is Podman's again")
}
