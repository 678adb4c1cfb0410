package runc_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/procfs"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/runc"
)

// long bounds every wait; only a bug reaches it.
const long = 5 * time.Minute

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// sleeper is a process that ends only by a signal.
type sleeper struct {
	cmd   *exec.Cmd
	start uint64 // as in proc_pid_stat(5)
}

func newSleeper(t *testing.T) sleeper {
	t.Helper()
	s := sleeper{cmd: exec.Command("sleep", "86400")}
	must(t, s.cmd.Start())
	t.Cleanup(func() { _ = s.cmd.Process.Kill(); _ = s.cmd.Wait() })
	p, err := procfs.NewProc(s.cmd.Process.Pid)
	must(t, err)
	stat, err := p.Stat()
	must(t, err)
	s.start = stat.Starttime
	return s
}

// ended waits for its end.
func (s sleeper) ended() error { return s.cmd.Wait() }

// writers write the files of a container like runc and crun.
var writers = map[string]func(t *testing.T, root, id string, pid int, start uint64){"runc": writeRunc, "crun": writeCrun}

const createdAt = "2026-11-20T12:00:00.123456789Z"

func writeRunc(t *testing.T, root, id string, pid int, start uint64) {
	t.Helper()
	put(t, filepath.Join(root, id, "state.json"), fmt.Sprintf(`{"id":%q,"init_process_pid":%d,"init_process_start":%d,"created":%q,
		"config":{"labels":["hostler.io/priority=7","org.opencontainers.image.ref.name=registry.example/web:1","bundle=/b"],"namespaces":[{"type":"NEWPID","path":""}]},
		"cgroup_paths":{"":"/sys/fs/cgroup/none"}}`, id, pid, start, createdAt))
}

func writeCrun(t *testing.T, root, id string, pid int, start uint64) {
	t.Helper()
	put(t, filepath.Join(root, id, "config.json"), `{"ociVersion":"1.0.0","annotations":{"hostler.io/priority":"7","org.opencontainers.image.ref.name":"registry.example/web:1"},
		"linux":{"namespaces":[{"type":"pid"},{"type":"mount"}]}}`)
	put(t, filepath.Join(root, id, "status"), fmt.Sprintf(`{"pid":%d,"process-start-time":%d,"cgroup-path":"/none","scope":"","rootfs":"/r","systemd-cgroup":false,
		"bundle":"/b","created":%q,"detached":true,"external_descriptors":"[]"}`, pid, start, createdAt))
}

// put replaces a file as the programs do: by renaming a temporary file.
func put(t *testing.T, path, text string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o700))
	must(t, os.WriteFile(path+".new", []byte(text), 0o600))
	must(t, os.Rename(path+".new", path))
}

func open(t *testing.T, root string) *runc.Runtime {
	t.Helper()
	r, err := runc.New(runc.Options{Endpoint: root})
	must(t, err)
	t.Cleanup(func() { must(t, r.Close()) })
	return r
}

// stateRoot returns a folder with the permissions that the programs set.
func stateRoot(t *testing.T) string {
	t.Helper()
	root := filepath.Join(t.TempDir(), "runc")
	must(t, os.Mkdir(root, 0o700))
	return root
}

// listed returns the containers, by ID.
func listed(t *testing.T, r *runc.Runtime) map[string]runtime.Container {
	t.Helper()
	pods, err := r.Pods(t.Context())
	must(t, err)
	list := map[string]runtime.Container{}
	for _, p := range pods {
		if len(p.Containers) != 1 || p.ID != p.Containers[0].ID || p.Ready != (p.Containers[0].State == runtime.Running) || p.Sandbox {
			t.Errorf("Pods() = %+v, want a pod for each container", p)
		}
		list[p.ID] = p.Containers[0]
	}
	return list
}

// events reads the events of a watch.
type events struct {
	*testing.T
	came chan runtime.Event
}

// watching starts a watch of a root, and returns once it reports events.
func watching(t *testing.T, root string) events {
	t.Helper()
	started := make(signalling)
	r, err := runc.New(runc.Options{Endpoint: root, Logger: slog.New(slog.NewTextHandler(started, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	must(t, err)
	e := events{t, make(chan runtime.Event)}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := r.Watch(t.Context(), e.came); t.Context().Err() == nil {
			t.Errorf("Watch() = %v, want it to continue", err)
		}
	}()
	t.Cleanup(func() { <-ended })
	select {
	case <-started:
	case <-time.After(long):
		t.Fatal("no watch has begun")
	}
	return e
}

// signalling is a log that reports when a watch has started.
type signalling chan struct{}

func (t signalling) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte("watching containers")) {
		close(t)
	}
	return len(line), nil
}

// next waits for an event of one of the types about a container, and drops others.
func (e events) next(id string, types ...runtime.EventType) {
	e.Helper()
	late := time.After(long)
	for {
		select {
		case got := <-e.came:
			if got.ContainerID == id && slices.Contains(types, got.Type) {
				return
			}
		case <-late:
			e.Fatalf("no event of types %v of %s within %v", types, id, long)
		}
	}
}
