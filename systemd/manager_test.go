package systemd_test

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"testing"
	"time"

	"hostler.io/hostler/systemd"
	"hostler.io/hostler/systemd/systemdtest"
)

func TestManagerTellsAShutdownFromAServiceStop(t *testing.T) {
	cases := []struct {
		name  string
		state systemdtest.ManagerState
		want  bool
	}{
		{"a system that runs", systemdtest.ManagerState{SystemState: "running"}, false},
		{"a system with failed units", systemdtest.ManagerState{SystemState: "degraded"}, false},
		{"the rescue shell", systemdtest.ManagerState{SystemState: "maintenance", ShutdownLoaded: true, ShutdownState: "inactive"}, false},
		{"a system that stops", systemdtest.ManagerState{SystemState: "stopping", ShutdownLoaded: true, ShutdownState: "inactive", ShutdownJob: 7}, true},
		{"a boot", systemdtest.ManagerState{SystemState: "starting", ShutdownLoaded: true, ShutdownState: "inactive"}, false},
		{"a shutdown queued during the boot", systemdtest.ManagerState{SystemState: "starting", ShutdownLoaded: true, ShutdownState: "inactive", ShutdownJob: 7}, true},
		{"a shutdown reached during the boot", systemdtest.ManagerState{SystemState: "starting", ShutdownLoaded: true, ShutdownState: "active"}, true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			fake := systemdtest.NewFake(t, systemdtest.FakeOptions{})
			fake.SetManager(c.state)
			got, err := systemd.NewManager(fake.ManagerSocket()).Stopping(t.Context())
			if got != c.want || err != nil {
				t.Errorf("Stopping() = %v, %v, want %v", got, err, c.want)
			}
		})
	}
}

func TestManagerAnswersWithoutABus(t *testing.T) {
	fake := systemdtest.NewFake(t, systemdtest.FakeOptions{})
	started := time.Now().Add(-time.Hour).Truncate(time.Microsecond)
	fake.SetManager(systemdtest.ManagerState{SystemState: "stopping", StartedAtUsec: uint64(started.UnixMicro())})
	fake.KillBus(t)
	manager := systemd.NewManager(fake.ManagerSocket())
	if got, err := manager.Stopping(t.Context()); !got || err != nil {
		t.Errorf("Stopping() = %v, %v, want true", got, err)
	}
	if got, err := manager.StartedAt(t.Context()); !got.Equal(started) || err != nil {
		t.Errorf("StartedAt() = %v, %v, want %v", got, err, started)
	}
}

func TestManagerIsMissedByName(t *testing.T) {
	dir := t.TempDir()
	stale := filepath.Join(dir, "stale")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: stale, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	listener.SetUnlinkOnClose(false)
	listener.Close()
	for name, socket := range map[string]string{"no socket": filepath.Join(dir, "none"), "a socket that nobody listens on": stale} {
		t.Run(name, func(t *testing.T) {
			manager := systemd.NewManager(socket)
			if stopping, err := manager.Stopping(t.Context()); stopping || !errors.Is(err, systemd.ErrNotSystemd) {
				t.Errorf("Stopping() = %v, %v, want false, %v", stopping, err, systemd.ErrNotSystemd)
			}
			if _, err := manager.StartedAt(t.Context()); !errors.Is(err, systemd.ErrNotSystemd) {
				t.Errorf("StartedAt() = %v, want %v", err, systemd.ErrNotSystemd)
			}
		})
	}
}

func TestManagerThatHangsIsNotWaitedForLongerThanAllowed(t *testing.T) {
	fake := systemdtest.NewFake(t, systemdtest.FakeOptions{})
	defer fake.HoldManager("Get")()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := systemd.NewManager(fake.ManagerSocket()).Stopping(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Stopping() = %v of a manager that hangs, want %v", err, context.DeadlineExceeded)
	}
}
