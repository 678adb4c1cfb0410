package systemdtest

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"

	"hostler.io/hostler/systemd"
)

// FakeOptions select the version of systemd that the fake imitates. The zero value is Debian 12:
// systemd 252.
type FakeOptions struct {
	// Metadata: logind also reports the kind of a shutdown, in signals and in answers.
	Metadata bool
	// CanReload: logind's unit has a reload, not only SIGHUP.
	CanReload bool
	// Stops: a job to stop logind is queued.
	Stops bool
	// Roots: locks are listed as root's, whichever user runs the test.
	Roots bool
}

// Fake is a system bus with a logind and a manager, and the manager's private socket, in this
// process. It is a Bed. Its methods are safe for concurrent use.
type Fake struct {
	root    string
	bus     *server
	private *server
	login   *login1
	manager *Manager
}

var _ Bed = (*Fake)(nil)

// NewFake starts a fake that ends with the test.
func NewFake(t testing.TB, options FakeOptions) *Fake {
	t.Helper()
	root := folder(t)
	f := &Fake{root: root, bus: newServer(filepath.Join(root, "bus"), nil)}
	f.login = newLogin1(root, f.bus, options)
	f.manager = NewManager(ManagerOptions{CanReload: options.CanReload, Stops: options.Stops, Reload: f.login.reload})
	f.private = newServer(f.ManagerSocket(), f.manager.service)
	for _, start := range []func() error{f.bus.start, f.private.start, f.login.start} {
		if err := start(); err != nil {
			t.Fatalf("start the fake: %v", err)
		}
	}
	f.bus.own(f.manager.service)
	t.Cleanup(func() {
		f.login.stop()
		f.bus.stop()
		f.private.stop()
	})
	return f
}

// folder returns a temporary folder whose path is short enough for sockets. Paths of t.TempDir
// contain the test's name, and may be too long.
func folder(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "fake-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// Address returns the address of the fake system bus.
func (f *Fake) Address() string { return "unix:path=" + dbus.EscapeBusAddressValue(f.bus.path) }

// Root returns the folder that contains etc/systemd, run/systemd and usr/lib/systemd.
func (f *Fake) Root() string { return f.root }

// ManagerSocket returns the path of the manager's private socket.
func (f *Fake) ManagerSocket() string { return filepath.Join(f.root, "private") }

// SetManager changes the manager's state.
func (f *Fake) SetManager(state ManagerState) {
	f.manager.mu.Lock()
	defer f.manager.mu.Unlock()
	f.manager.state = state
}

// Reloads returns the calls that made logind read its configuration: "KillUnit main" or "ReloadUnit
// replace".
func (f *Fake) Reloads() []string {
	f.manager.mu.Lock()
	defer f.manager.mu.Unlock()
	return slices.Clone(f.manager.reloads)
}

// StoppedUnits returns the requested stops, with their mode: "web.service replace".
func (f *Fake) StoppedUnits() []string {
	f.manager.mu.Lock()
	defer f.manager.mu.Unlock()
	return slices.Clone(f.manager.stopped)
}

// StartedUnits returns the requested starts.
func (f *Fake) StartedUnits() []string {
	var names []string
	for _, unit := range f.manager.StartedUnits() {
		names = append(names, unit.Name)
	}
	return names
}

// Hold blocks the answers to calls of a method, such as "Inhibit", until release.
func (f *Fake) Hold(member string) (release func()) { return f.bus.hold(member) }

// OnSubscribe calls reported with each subscribed signal, before the subscriber gets an answer, in
// another goroutine than the test's.
func (f *Fake) OnSubscribe(reported func(member string)) {
	f.bus.mu.Lock()
	defer f.bus.mu.Unlock()
	f.bus.subscribed = reported
}

// HoldManager is Hold for the private socket.
func (f *Fake) HoldManager(member string) (release func()) { return f.private.hold(member) }

// SlowManager returns a Manager over pipes, which follows the time of a testing/synctest bubble.
// Each answer takes that long, one after the other, as on a busy host.
func (f *Fake) SlowManager(takes time.Duration) *systemd.Manager {
	pace := &slow{takes: takes, turn: make(chan struct{}, 1)}
	return systemd.NewManagerOver(func(context.Context) (io.ReadWriteCloser, error) {
		here, there := net.Pipe()
		f.private.admit(&client{server: f.private, conn: there, slow: pace})
		return here, nil
	})
}

// RestartManager imitates a manager that re-executes itself: its connections are lost, and new ones
// fail for a moment.
func (f *Fake) RestartManager(t testing.TB) {
	t.Helper()
	f.private.stop()
	if err := f.private.start(); err != nil {
		t.Fatalf("restart the fake manager: %v", err)
	}
}

// Announce sends PrepareForShutdown like logind, whatever the state is.
func (f *Fake) Announce(active bool) {
	f.bus.emit(f.login.service, loginPath, loginManager, "PrepareForShutdown", active)
}

// KillLogind kills logind; its inhibitors stay in /run.
func (f *Fake) KillLogind(testing.TB) { f.login.stop() }

// StartLogind starts logind again.
func (f *Fake) StartLogind(t testing.TB) {
	t.Helper()
	if err := f.login.start(); err != nil {
		t.Fatalf("start logind: %v", err)
	}
}

// KillBus kills the bus, and logind's connection with it.
func (f *Fake) KillBus(testing.TB) {
	f.login.stop()
	f.bus.stop()
}

// StartBus starts the bus again, and logind on it.
func (f *Fake) StartBus(t testing.TB) {
	t.Helper()
	if err := f.bus.start(); err != nil {
		t.Fatalf("start the bus: %v", err)
	}
	f.bus.own(f.manager.service)
	f.StartLogind(t)
}

// AwaitDown returns when logind has requested the shutdown from the manager.
func (f *Fake) AwaitDown(t testing.TB) time.Time {
	t.Helper()
	select {
	case at := <-f.login.down:
		return at
	case <-time.After(patience):
		t.Fatalf("logind has not brought the system down after %v", patience)
		return time.Time{}
	}
}

// Reboot makes logind announce a reboot, and shut the system down when no lock delays it.
func (f *Fake) Reboot(t testing.TB) {
	t.Helper()
	if err := f.login.shutDown("reboot"); err != nil {
		t.Fatalf("reboot: %v", err)
	}
}

// AbortShutdown cancels the job that shuts the system down.
func (f *Fake) AbortShutdown(testing.TB) { f.login.abort() }

// CancelShutdown cancels a shutdown that locks delay, without a signal, as `shutdown -c` does since
// systemd 257.
func (f *Fake) CancelShutdown(testing.TB) { f.login.cancelShutdown() }
