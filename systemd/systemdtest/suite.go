package systemdtest

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"

	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/systemd"
)

// Run runs the cases for systemd.Logind with any logind, each on its own bed. start creates a bed
// that ends with the test.
func Run(t *testing.T, start func(t *testing.T) Bed) {
	cases := []struct {
		name string
		run  func(t *testing.T, r *rig)
	}{
		{"the longest delay is raised, not lowered, and restored", raises},
		{"a drop-in that sorts before ours does no harm", sortsLast},
		{"what another drop-in grants is not cut down", leavesMore},
		{"what another drop-in granted is removed with it", endsWithIt},
		{"a drop-in that sorts after ours is named", overridden},
		{"a drop-in that masks ours is named", masked},
		{"a torn file that keeps logind from reading ours is named", torn},
		{"a drop-in that another process removed is put back", putBack},
		{"a drop-in that logind has not read lowers nothing", notYetRead},
		{"the drop-in is left to another owner who counts on it", yields},
		{"odd files are read as logind reads them", readsAlike},
		{"a change of the longest delay is reported", reportsDelay},
		{"a change back is reported to a watcher that saw the change", reportsDelaySeenBetween},
		{"a lock that is taken or released is reported", reportsLocks},
		{"a lock is listed, returned again, and released once", locks},
		{"a reboot is announced, and continues when the lock is closed", reboots},
		{"a scheduled shutdown is announced when its time comes", schedules},
		{"no lock is given while a shutdown runs", refuses},
		{"an aborted shutdown is a cancellation", cancels},
		{"the lock survives a crash of logind", survivesLogind},
		{"a crash of logind ends the shutdown that it announced", forgets},
		{"the lock survives a crash of the bus", survivesBus},
		{"what is missing has a name", missing},
		{"the lock outlives the process in the service manager's store", outlives},
		{"a lock that the service manager did not take is stored later", storesLater},
		{"a lock that the service manager did not drop is dropped later", dropsLater},
		{"a lock is closed although the service manager does not drop its own", closesFirst},
		{"of several stored locks one is kept", keepsOne},
		{"a stored descriptor that logind does not know is closed", dropsStale},
		{"a stored lock that no shutdown waits for is replaced", replacesDead},
		{"fifty locks leave no descriptor behind", leavesNothing},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			bed := start(t)
			c.run(t, &rig{T: t, Bed: bed, logind: newLogind(t, bed, systemd.LogindOptions{})})
		})
	}
}

// rig is a bed with a Logind on it.
type rig struct {
	*testing.T
	Bed
	logind *systemd.Logind
}

func newLogind(t *testing.T, bed Bed, options systemd.LogindOptions) *systemd.Logind {
	options.Address, options.Root = bed.Address(), bed.Root()
	logind := systemd.NewLogind(options)
	t.Cleanup(func() {
		if err := logind.Close(); err != nil {
			t.Errorf("Close() = %v, want nil", err)
		}
	})
	return logind
}

// login calls a method of logind, as another client on the bus.
func (r *rig) login(method string, args ...any) []any {
	r.Helper()
	conn, err := dbus.Connect(r.Address())
	if err != nil {
		r.Fatalf("connect: %v", err)
	}
	defer conn.Close()
	reply := conn.Object(loginName, loginPath).Call(loginManager+"."+method, 0, args...)
	if reply.Err != nil {
		r.Fatalf("%s(%v): %v", method, args, reply.Err)
	}
	return reply.Body
}

func (r *rig) lock(logind *systemd.Logind) io.Closer {
	r.Helper()
	lock, err := logind.Inhibit(r.Context(), "to see it held")
	if err != nil {
		r.Fatalf("Inhibit() = %v, want a lock", err)
	}
	return lock
}

// expectLocks waits until logind lists n locks of hostler.
func (r *rig) expectLocks(n int) {
	r.Helper()
	var ours []systemd.InhibitorLock
	r.eventually(func() bool {
		list, err := r.logind.ListInhibitors(r.Context())
		if err != nil {
			r.Fatalf("ListInhibitors() = %v, want a list", err)
		}
		ours = slices.DeleteFunc(list, func(k systemd.InhibitorLock) bool { return k.Who != "hostler" })
		return len(ours) == n
	}, "ListInhibitors() shows %d locks of hostler's", n)
	for _, k := range ours {
		if k.What != "shutdown" || k.Mode != "delay" || k.PID != uint32(os.Getpid()) {
			r.Errorf("ListInhibitors() has %+v, want a delay lock on shutdown of process %d", k, os.Getpid())
		}
	}
}

// eventually waits for a change in another process.
func (r *rig) eventually(true func() bool, format string, args ...any) {
	r.Helper()
	for deadline := time.Now().Add(patience); !true(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			r.Fatalf("not after %v: "+format, append([]any{patience}, args...)...)
		}
	}
}

// watching is a running Watch.
type watching struct {
	*testing.T
	events chan shutdown.Event
	ended  chan error
}

// watch starts a Watch and waits for its subscription.
func (r *rig) watch() *watching {
	r.Helper()
	w := &watching{T: r.T, events: make(chan shutdown.Event), ended: make(chan error, 1)}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.ended <- r.logind.Watch(ctx, w.events)
	}()
	r.Cleanup(func() { cancel(); <-done })
	w.expect(shutdown.Subscribed)
	return w
}

// expect waits for the next event, which must be of that type, and returns its kind. It skips
// Altered, which every lock causes.
func (w *watching) expect(want shutdown.EventType) string {
	w.Helper()
	for {
		select {
		case event := <-w.events:
			if event.Type == shutdown.Altered && want != shutdown.Altered {
				continue
			}
			if event.Type != want {
				w.Fatalf("Watch() sent %+v, want type %d", event, want)
			}
			return event.Kind
		case err := <-w.ended:
			w.Fatalf("Watch() = %v, want event %d", err, want)
			return ""
		case <-time.After(patience):
			w.Fatalf("Watch() sent nothing for %v, want event %d", patience, want)
			return ""
		}
	}
}

func (r *rig) expectPreparing(want bool) {
	r.Helper()
	if got, err := r.logind.Preparing(r.Context()); err != nil || got != want {
		r.Fatalf("Preparing() = %v, %v, want %v", got, err, want)
	}
}

// raise raises the delay to far more than a test takes.
func (r *rig) raise() {
	r.Helper()
	if got, err := r.logind.RaiseMaxDelay(r.Context(), 5*time.Minute); err != nil || got != 5*time.Minute {
		r.Fatalf("RaiseMaxDelay(5m) = %v, %v, want 5m", got, err)
	}
}

// rereadConfig makes logind read its files, like `systemctl kill -s HUP`.
func (r *rig) rereadConfig() {
	r.Helper()
	conn, err := dbus.Connect(r.Address())
	if err != nil {
		r.Fatalf("connect: %v", err)
	}
	defer conn.Close()
	err = conn.Object("org.freedesktop.systemd1", "/org/freedesktop/systemd1").
		Call("org.freedesktop.systemd1.Manager.KillUnit", 0, "systemd-logind.service", "main", int32(unix.SIGHUP)).Err
	if err != nil {
		r.Fatalf("KillUnit(systemd-logind.service, main, SIGHUP): %v", err)
	}
}

// write writes a file of logind's configuration, until the test ends.
func (r *rig) write(path, text string) {
	r.Helper()
	path = filepath.Join(r.Root(), path)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { os.Remove(path) })
}

func (r *rig) expectDelay(want time.Duration) {
	r.Helper()
	r.eventually(func() bool {
		got, err := r.logind.MaxDelay(r.Context())
		return err == nil && got == want
	}, "MaxDelay() = %v", want)
}

// expectRefusal expects a raise to fail, with the granted delay and the path of the obstacle.
func (r *rig) expectRefusal(granted time.Duration, path string) {
	r.Helper()
	got, err := r.logind.RaiseMaxDelay(r.Context(), time.Minute)
	if err == nil || !strings.Contains(err.Error(), path) || got != granted {
		r.Errorf("RaiseMaxDelay(1m) = %v, %v, want %v and an error that names %s", got, err, granted, path)
	}
}
