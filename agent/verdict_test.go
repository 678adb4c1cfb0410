package agent

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"hostler.io/hostler/systemd"
	"hostler.io/hostler/systemd/systemdtest"
)

// A systemd that stops many units answers late. The agent must wait, because the answer decides
// between a service stop and a shutdown in which pods would be killed.
func TestASystemdThatAnswersLateIsWaitedFor(t *testing.T) {
	t.Parallel()
	fake := systemdtest.NewFake(t, systemdtest.FakeOptions{})
	fake.SetManager(systemdtest.ManagerState{SystemState: "stopping"})
	busy := filepath.Join(filepath.Dir(fake.ManagerSocket()), "busy")
	a := newRig(t).build(t)
	a.host.manager = systemd.NewManager(busy)
	listener, err := net.Listen("unix", busy)
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
			time.Sleep(4 * time.Second) // longer than the limit of other requests
			server, err := net.Dial("unix", fake.ManagerSocket())
			if err != nil {
				t.Error(err)
				return
			}
			go func() { _, _ = io.Copy(client, server); client.Close() }()
			_, _ = io.Copy(server, client)
			server.Close()
		}
	}()
	stopping, _, err := a.systemStops(t.Context(), nil)
	for tries := 0; errors.Is(err, context.DeadlineExceeded) && tries < 4; tries++ { // on a busy machine, it took too long
		stopping, _, err = a.systemStops(t.Context(), nil)
	}
	if !stopping || err != nil {
		t.Errorf("systemStops() = %t, %v, want true", stopping, err)
	}
}

func TestASecondSignalEndsTheWaitForSystemd(t *testing.T) {
	t.Parallel()
	fake := systemdtest.NewFake(t, systemdtest.FakeOptions{})
	unresponsive := filepath.Join(filepath.Dir(fake.ManagerSocket()), "mute")
	listener, err := net.Listen("unix", unresponsive)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	a := newRig(t).build(t)
	a.host.manager = systemd.NewManager(unresponsive)
	signals := make(chan os.Signal, 2)
	signals <- syscall.SIGHUP
	signals <- syscall.SIGTERM
	if stopping, again, err := a.systemStops(t.Context(), signals); stopping || again != syscall.SIGTERM || !errors.Is(err, context.Canceled) {
		t.Errorf("systemStops() = %t, %v, want that it was given up for SIGTERM: %v", stopping, err, context.Canceled)
	}
}
