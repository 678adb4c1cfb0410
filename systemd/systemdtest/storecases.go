package systemdtest

import (
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"hostler.io/hostler/systemd"
	"hostler.io/hostler/systemd/notify"
)

// notifier returns a Notifier for the manager.
func (r *rig) notifier(manager *ServiceManager) *notify.Notifier {
	return notify.New(manager.Getenv, func(string) error { return nil })
}

// service returns the Logind of a process of a service with a descriptor store.
func (r *rig) service(manager *ServiceManager) *systemd.Logind {
	r.Helper()
	return newLogind(r.T, r.Bed, systemd.LogindOptions{
		Notifier: r.notifier(manager),
		Kept:     manager.Pass(r.T),
	})
}

func (r *rig) expectStored(manager *ServiceManager, want ...string) {
	r.Helper()
	r.eventually(func() bool { return slices.Equal(manager.Stored(), want) }, "Stored() = %v", want)
}

// end closes a Logind as the end of its process would.
func (r *rig) end(logind *systemd.Logind) {
	r.Helper()
	if err := logind.Close(); err != nil {
		r.Fatalf("Close() = %v, want nil", err)
	}
}

func outlives(t *testing.T, r *rig) {
	r.raise()
	manager := NewServiceManager(t, 2)
	first := r.service(manager)
	r.lock(first)
	if got := manager.Next(t); !strings.Contains(got, "FDSTORE=1") || !strings.Contains(got, "FDPOLL=0") || !strings.Contains(got, "FDNAME=inhibit") {
		t.Errorf("the service sent %q, want FDSTORE=1, FDNAME=inhibit and FDPOLL=0", got)
	}
	r.expectStored(manager, systemd.StoredLock)
	r.end(first)
	r.expectLocks(1)

	second := r.service(manager)
	r.login("Reboot", false) // logind grants no new locks any more
	lock := r.lock(second)
	r.expectLocks(1)
	r.expectStored(manager, systemd.StoredLock)
	released := time.Now()
	if err := lock.Close(); err != nil {
		t.Fatalf("Close() = %v, want nil", err)
	}
	t.Logf("the shutdown went on %v after the release", r.AwaitDown(t).Sub(released))
	r.expectStored(manager)
	r.expectLocks(0)
}

func keepsOne(t *testing.T, r *rig) {
	manager := NewServiceManager(t, 2)
	for range 2 { // the second process did not close the first one's
		some := systemd.NewLogind(systemd.LogindOptions{
			Address: r.Address(), Root: r.Root(),
			Notifier: r.notifier(manager),
		})
		r.lock(some)
		defer some.Close()
		r.end(some)
	}
	r.expectStored(manager, systemd.StoredLock, systemd.StoredLock)
	r.expectLocks(2)
	third := r.service(manager)
	r.lock(third)
	r.expectLocks(1)
	r.expectStored(manager, systemd.StoredLock)
	if err := third.ReleaseAll(); err != nil {
		t.Errorf("ReleaseAll() = %v, want nil", err)
	}
	r.expectLocks(0)
	r.expectStored(manager)
}

func dropsStale(t *testing.T, r *rig) {
	manager := NewServiceManager(t, 2)
	notifier := r.notifier(manager)
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []io.Closer{reader, writer} {
		defer file.Close()
	}
	if err := notifier.StoreFile(systemd.StoredLock, writer); err != nil {
		t.Fatalf("StoreFile() = %v, want nil", err)
	}
	r.expectStored(manager, systemd.StoredLock)
	logind := r.service(manager)
	lock := r.lock(logind)
	r.expectLocks(1)
	r.expectStored(manager, systemd.StoredLock) // ours, in its place
	// Now all ends except the reader's are closed, so it sees the end.
	writer.Close()
	poll := []unix.PollFd{{Fd: int32(reader.Fd()), Events: unix.POLLIN}}
	r.eventually(func() bool {
		_, err := unix.Poll(poll, 0)
		return err == nil && poll[0].Revents&unix.POLLHUP != 0
	}, "the stale descriptor is closed everywhere")
	if err := lock.Close(); err != nil {
		t.Errorf("Close() = %v, want nil", err)
	}
	r.expectStored(manager)
}

func replacesDead(t *testing.T, r *rig) {
	r.lock(newLogind(t, r.Bed, systemd.LogindOptions{})) // so that logind lists a lock in our name
	manager := NewServiceManager(t, 2)
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	notifier := r.notifier(manager)
	if err := notifier.StoreFile(systemd.StoredLock, writer); err != nil {
		t.Fatalf("StoreFile() = %v, want nil", err)
	}
	r.expectStored(manager, systemd.StoredLock)
	reader.Close()
	lock := r.lock(r.service(manager))
	r.expectLocks(2)
	if err := lock.Close(); err != nil {
		t.Errorf("Close() = %v, want nil", err)
	}
	r.expectLocks(1)
}

func storesLater(t *testing.T, r *rig) {
	manager := NewServiceManager(t, 2)
	logind := r.service(manager)
	back := manager.Busy(t)
	r.lock(logind)
	r.lock(logind) // still busy
	back()
	r.expectStored(manager)
	r.lock(logind)
	r.expectStored(manager, systemd.StoredLock)
	r.expectLocks(1)

	// A stored lock must not be stored again.
	messages := func() (messages []string) {
		if err := r.notifier(manager).Ready(); err != nil {
			t.Fatalf("Ready() = %v, want nil", err)
		}
		for {
			message := manager.Next(t)
			if message == "READY=1" {
				return messages
			}
			messages = append(messages, message)
		}
	}
	messages()
	r.lock(logind)
	if got := messages(); len(got) != 0 {
		t.Errorf("the service sent %q for a lock that is stored, want nothing", got)
	}
	r.end(logind)
	r.expectLocks(1)
}

func dropsLater(t *testing.T, r *rig) {
	r.raise()
	manager := NewServiceManager(t, 2)
	logind := r.service(manager)
	lock := r.lock(logind)
	r.expectStored(manager, systemd.StoredLock)
	r.login("Reboot", false)
	back := manager.Busy(t)
	if err := lock.Close(); err == nil {
		t.Error("Close() = nil, want it to say that the service manager keeps a lock")
	}
	r.expectLocks(1) // the stored one
	back()
	r.expectStored(manager)
	r.AwaitDown(t)
}

func closesFirst(t *testing.T, r *rig) {
	manager := NewServiceManager(t, 2)
	logind := r.service(manager)
	lock := r.lock(logind)
	r.expectStored(manager, systemd.StoredLock)
	back := manager.Busy(t)
	if err := lock.Close(); err == nil {
		t.Error("Close() = nil, want it to say that the service manager keeps a lock")
	}
	manager.Drop() // by itself, like a stop of the service
	r.expectLocks(0)
	// A delayed removal must not drop the new lock.
	r.lock(logind)
	r.expectLocks(1)
	back()
	for _, want := range []string{"FDSTORE=1", "FDSTOREREMOVE=1", "FDSTORE=1"} {
		if got, _, _ := strings.Cut(manager.Next(t), "\n"); got != want {
			t.Errorf("the service sent %q, want %q", got, want)
		}
	}
	r.expectStored(manager, systemd.StoredLock)
	r.end(logind)
	r.expectLocks(1)
}
