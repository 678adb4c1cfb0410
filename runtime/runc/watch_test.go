package runc_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"hostler.io/hostler/runtime"
)

func TestAWatchReportsTheLifecycle(t *testing.T) {
	for program, write := range writers {
		t.Run(program, func(t *testing.T) {
			// Not even the folder above the root exists.
			root := filepath.Join(t.TempDir(), "state", "root")
			e := watching(t, root)
			for range 2 { // the root is created again
				for range 2 { // a container of the same name, too
					s := newSleeper(t)
					fifo := filepath.Join(root, "web", "exec.fifo")
					must(t, os.MkdirAll(filepath.Dir(fifo), 0o700))
					must(t, unix.Mkfifo(fifo, 0o600))
					write(t, root, "web", s.cmd.Process.Pid, s.start)
					e.next("web", runtime.ContainerCreated)
					must(t, os.Remove(fifo))
					e.next("web", runtime.ContainerStarted)
					must(t, s.cmd.Process.Kill())
					e.next("web", runtime.ContainerExited)
					must(t, os.RemoveAll(filepath.Join(root, "web")))
					e.next("web", runtime.ContainerRemoved)
				}
				must(t, os.RemoveAll(filepath.Dir(root)))
			}
		})
	}
}

// Containers that exist when a watch begins are in lists; only their end is reported.
func TestAWatchReportsTheEndOfExistingContainers(t *testing.T) {
	root, s, other := stateRoot(t), newSleeper(t), newSleeper(t)
	writeRunc(t, root, "web", s.cmd.Process.Pid, s.start)
	e := watching(t, root)
	must(t, s.cmd.Process.Kill())
	e.next("web", runtime.ContainerExited)
	// Another container has the same name, without an event.
	writeRunc(t, root, "web", other.cmd.Process.Pid, other.start)
	e.next("web", runtime.ContainerStarted)
	third := newSleeper(t)
	writeRunc(t, root, "web", third.cmd.Process.Pid, third.start)
	e.next("web", runtime.ContainerStarted)
	// Podman's containers are not reported.
	put(t, filepath.Join(root, "theirs", "state.json"), `{"init_process_pid":1,"init_process_start":1,"created":"2026-11-20T12:00:00Z","config":{"labels":["io.container.manager=libpod","bundle=/run/theirs/userdata"]}}`)
	put(t, filepath.Join(root, "torn", "state.json"), `{`)
	must(t, os.RemoveAll(filepath.Join(root, "web")))
	select {
	case got := <-e.came:
		if got.ContainerID != "web" || got.Type != runtime.ContainerRemoved {
			t.Errorf("event %+v, want that web is removed and nothing before", got)
		}
	case <-t.Context().Done():
	}
}

// A container that cannot be read does not hide others.
func TestAWatchIgnoresWhatIsNoContainer(t *testing.T) {
	root, s := stateRoot(t), newSleeper(t)
	must(t, os.Symlink("/nowhere", filepath.Join(root, "before")))
	e := watching(t, root)
	put(t, filepath.Join(root, "a-file"), "text")
	must(t, os.Mkdir(filepath.Join(root, "loop"), 0o700))
	must(t, os.Symlink("state.json", filepath.Join(root, "loop", "state.json")))
	must(t, os.Mkdir(filepath.Join(root, "outside"), 0o700))
	must(t, os.Symlink("/etc/passwd", filepath.Join(root, "outside", "state.json")))
	writeRunc(t, root, "web", s.cmd.Process.Pid, s.start)
	e.next("web", runtime.ContainerStarted)
	must(t, s.cmd.Process.Kill())
	e.next("web", runtime.ContainerExited)
}

func TestAWatchEndsWithItsContext(t *testing.T) {
	root, s := stateRoot(t), newSleeper(t)
	writeRunc(t, root, "web", s.cmd.Process.Pid, s.start)
	ctx, cancel := context.WithCancel(t.Context())
	r := open(t, root)
	ended := make(chan error, 1)
	go func() { ended <- r.Watch(ctx, make(chan runtime.Event)) }()
	must(t, s.cmd.Process.Kill()) // no event is read
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("Watch() = %v, want %v", err, context.Canceled)
	}
}
