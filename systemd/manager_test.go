package systemd_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"

	"hostler.io/hostler/systemd"
	"hostler.io/hostler/systemd/systemdtest"
)

func TestManagerDistinguishesAShutdownFromAServiceStop(t *testing.T) {
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

func TestAMissingManagerIsNamed(t *testing.T) {
	manager := systemd.NewManager(filepath.Join(t.TempDir(), "none"))
	if stopping, err := manager.Stopping(t.Context()); stopping || !errors.Is(err, systemd.ErrNotSystemd) {
		t.Errorf("Stopping() = %v, %v, want false, %v", stopping, err, systemd.ErrNotSystemd)
	}
	if _, err := manager.StartedAt(t.Context()); !errors.Is(err, systemd.ErrNotSystemd) {
		t.Errorf("StartedAt() = %v, want %v", err, systemd.ErrNotSystemd)
	}
}

// While systemd re-executes itself, nobody listens for a moment.
func TestASocketWithoutAListenerIsNotAMissingSystemd(t *testing.T) {
	fake := systemdtest.NewFake(t, systemdtest.FakeOptions{})
	fake.SetManager(systemdtest.ManagerState{SystemState: "stopping", Service: systemdtest.ServiceState{Name: "k3s.service", ActiveState: "active"}})
	socket := filepath.Join(filepath.Dir(fake.ManagerSocket()), "stale")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	listener.SetUnlinkOnClose(false)
	listener.Close()
	manager := systemd.NewManager(socket)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	for what, ask := range map[string]func() error{
		"Stopping":  func() error { _, err := manager.Stopping(ctx); return err },
		"StopUnit":  func() error { _, err := manager.StopUnit(ctx, "k3s.service", 0, unreported); return err },
		"UnitStops": func() error { _, err := manager.UnitStops(ctx, "k3s.service"); return err },
		"UnitRuns":  func() error { _, err := manager.UnitRuns(ctx, "k3s.service"); return err },
		"StopAlone": func() error { _, err := manager.StopAlone(ctx, "k3s.service"); return err },
	} {
		if err := ask(); err == nil || errors.Is(err, systemd.ErrNotSystemd) {
			t.Errorf("%s() = %v, want an error that is not %v", what, err, systemd.ErrNotSystemd)
		}
	}
	patient, end := context.WithTimeout(t.Context(), 5*time.Minute)
	defer end()
	answer := make(chan bool)
	go func() {
		stopping, err := manager.Stopping(patient)
		answer <- stopping && err == nil
	}()
	if err := errors.Join(os.Symlink(fake.ManagerSocket(), socket+".new"), os.Rename(socket+".new", socket)); err != nil {
		t.Fatal(err)
	}
	if !<-answer {
		t.Error("Stopping() = false of a systemd that is back, want true")
	}
}

// When systemd re-executes itself, it removes its socket before it creates it again.
func TestAMissingSocketIsAwaitedBriefly(t *testing.T) {
	fake := systemdtest.NewFake(t, systemdtest.FakeOptions{})
	fake.SetManager(systemdtest.ManagerState{SystemState: "stopping"})
	socket := filepath.Join(t.TempDir(), "private")
	link := func() error { return os.Symlink(fake.ManagerSocket(), socket) }
	if err := link(); err != nil {
		t.Fatal(err)
	}
	manager := systemd.NewManager(socket)
	if err := os.Remove(socket); err != nil {
		t.Fatal(err)
	}
	hasty, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := manager.Stopping(hasty); err == nil || errors.Is(err, systemd.ErrNotSystemd) {
		t.Errorf("Stopping() = %v of a socket that is missing for a moment, want an error that is not %v", err, systemd.ErrNotSystemd)
	}
	err := systemd.ErrNotSystemd
	for tries := 0; errors.Is(err, systemd.ErrNotSystemd) && tries < 10; tries++ { // a busy machine may link it too late
		answer := make(chan error)
		go func() {
			_, err := manager.Stopping(t.Context())
			answer <- err
		}()
		err = errors.Join(link(), <-answer, os.Remove(socket))
	}
	if err != nil {
		t.Errorf("Stopping() = %v of a systemd whose socket is back, want none", err)
	}
	if _, err := manager.Stopping(t.Context()); !errors.Is(err, systemd.ErrNotSystemd) {
		t.Errorf("Stopping() = %v of a socket that stays away, want %v", err, systemd.ErrNotSystemd)
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

// systemd reads the end of the authentication and the following data at once, and then handles the
// data only when more arrives.
func TestManagerWakesASystemdWithABufferedMessage(t *testing.T) {
	fake := systemdtest.NewFake(t, systemdtest.FakeOptions{})
	fake.SetManager(systemdtest.ManagerState{SystemState: "stopping"})
	socket := filepath.Join(t.TempDir(), "private")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("unix", fake.ManagerSocket())
			if err != nil {
				t.Error(err)
				return
			}
			go func() { _, _ = io.Copy(client, server); client.Close() }()
			go func() { sluggish(server, client); server.Close() }()
		}
	}()
	if got, err := systemd.NewManager(socket).Stopping(t.Context()); !got || err != nil {
		t.Errorf("Stopping() = %v, %v, want true", got, err)
	}
}

// sluggish copies what a client sends, but holds the first message back until the second arrives.
func sluggish(to io.Writer, from io.Reader) {
	in := bufio.NewReader(from)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		if _, err := io.WriteString(to, line); err != nil {
			return
		}
		if strings.HasPrefix(line, "BEGIN") {
			break
		}
	}
	first, err := dbus.DecodeMessage(in)
	if err != nil {
		return
	}
	second, err := dbus.DecodeMessage(in)
	if err != nil {
		return
	}
	if errors.Join(first.EncodeTo(to, binary.LittleEndian), second.EncodeTo(to, binary.LittleEndian)) == nil {
		_, _ = io.Copy(to, in)
	}
}
