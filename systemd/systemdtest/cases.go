package systemdtest

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/systemd"
	"hostler.io/hostler/systemd/logindconf"
)

func raises(t *testing.T, r *rig) {
	dropIn := filepath.Join(r.Root(), systemd.DropInPath)
	r.expectDelay(logindconf.DefaultDelay)
	if got, err := r.logind.RaiseMaxDelay(t.Context(), logindconf.DefaultDelay); err != nil || got != logindconf.DefaultDelay {
		t.Fatalf("RaiseMaxDelay(5s) = %v, %v, want 5s", got, err)
	}
	if _, err := os.Stat(dropIn); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("RaiseMaxDelay() of what is granted made the drop-in: %v", err)
	}
	if got, err := r.logind.RaiseMaxDelay(t.Context(), 41500*time.Millisecond); err != nil || got != 42*time.Second {
		t.Fatalf("RaiseMaxDelay(41.5s) = %v, %v, want 42s", got, err)
	}
	if got, err := r.logind.RaiseMaxDelay(t.Context(), 10*time.Second); err != nil || got != 42*time.Second {
		t.Fatalf("RaiseMaxDelay(10s) = %v, %v, want 42s as before", got, err)
	}
	for range 2 {
		if err := r.logind.RestoreMaxDelay(t.Context()); err != nil {
			t.Fatalf("RestoreMaxDelay() = %v, want nil", err)
		}
	}
	if _, err := os.Stat(dropIn); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("RestoreMaxDelay() left the drop-in: %v", err)
	}
	if got, err := r.logind.MaxDelay(t.Context()); err != nil || got != logindconf.DefaultDelay {
		t.Fatalf("MaxDelay() = %v, %v right after RestoreMaxDelay(), want 5s", got, err)
	}
}

func sortsLast(_ *testing.T, r *rig) {
	r.write("/etc/systemd/logind.conf.d/unattended-upgrades-logind-maxdelay.conf", "[Login]\nInhibitDelayMaxSec=30\n")
	r.raise()
}

func leavesMore(t *testing.T, r *rig) {
	r.raise()
	// Another client requests a longer delay, and logind has not read its file yet.
	r.write("/etc/systemd/logind.conf.d/99-kubelet.conf", "[Login]\nInhibitDelayMaxSec=10min\n")
	if got, err := r.logind.RaiseMaxDelay(t.Context(), 9*time.Minute); err != nil || got != 10*time.Minute {
		t.Errorf("RaiseMaxDelay(9m) = %v, %v, want the 10m that another file sets", got, err)
	}
	if got, err := r.logind.MaxDelaySource(t.Context()); err != nil || got != "/etc/systemd/logind.conf.d/99-kubelet.conf" {
		t.Errorf("MaxDelaySource() = %q, %v, want the other file", got, err)
	}
}

func overridden(_ *testing.T, r *rig) {
	const path = "/etc/systemd/logind.conf.d/zzz.conf"
	r.write(path, "# mine\n[Login]\nInhibitDelayMaxSec = 0.5min\n")
	r.expectRefusal(30*time.Second, path)
	r.expectRefusal(30*time.Second, path)
}

func masked(t *testing.T, r *rig) {
	const path = "/etc/systemd/logind.conf.d/zz-hostler.conf"
	mask := filepath.Join(r.Root(), path)
	if err := errors.Join(os.MkdirAll(filepath.Dir(mask), 0o755), os.Symlink("/dev/null", mask)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(mask) })
	r.expectRefusal(logindconf.DefaultDelay, path)
}

func locks(t *testing.T, r *rig) {
	first := r.lock(r.logind)
	r.expectLocks(1)
	second := r.lock(r.logind)
	r.expectLocks(1)
	if err := first.Close(); err != nil {
		t.Errorf("Close() of a void lock = %v, want nil", err)
	}
	r.expectLocks(1)
	for range 2 {
		if err := second.Close(); err != nil {
			t.Errorf("Close() = %v, want nil", err)
		}
	}
	r.expectLocks(0)
	// The number of the closed descriptor was reused.
	third := r.lock(r.logind)
	if err := errors.Join(first.Close(), second.Close()); err != nil {
		t.Errorf("Close() of closed locks = %v, want nil", err)
	}
	r.expectLocks(1)
	if err := third.Close(); err != nil {
		t.Errorf("Close() = %v, want nil", err)
	}
}

func reboots(t *testing.T, r *rig) {
	r.raise()
	w := r.watch()
	lock := r.lock(r.logind)
	r.expectPreparing(false)
	r.login("Reboot", false)
	if kind := w.expect(shutdown.Prepare); kind != "reboot" {
		t.Errorf("Watch() sent Prepare of kind %q, want reboot", kind)
	}
	r.expectPreparing(true)
	released := time.Now()
	if err := lock.Close(); err != nil {
		t.Fatalf("Close() = %v, want nil", err)
	}
	took := r.AwaitDown(t).Sub(released)
	t.Logf("the shutdown went on %v after the release", took)
	// The delay is 5 minutes, so a minute means that the shutdown did not wait for it.
	if took < 0 || took > time.Minute {
		t.Errorf("the shutdown went on %v after the release, want at once", took)
	}
}

func schedules(t *testing.T, r *rig) {
	w := r.watch()
	scheduled := func(want string, when time.Time) {
		t.Helper()
		if kind, at, err := r.logind.Scheduled(t.Context()); kind != want || err != nil || want != "" && at.UnixMicro() != when.UnixMicro() {
			t.Errorf("Scheduled() = %q, %v, %v, want %q at %v", kind, at, err, want, when)
		}
	}
	scheduled("", time.Time{})
	later := time.Now().Add(time.Hour)
	r.login("ScheduleShutdown", "poweroff", uint64(later.UnixMicro()))
	scheduled("poweroff", later)
	if got := r.login("CancelScheduledShutdown"); !slices.Equal(got, []any{true}) {
		t.Fatalf("CancelScheduledShutdown() = %v, want true", got)
	}
	scheduled("", time.Time{})
	r.expectPreparing(false)
	r.login("ScheduleShutdown", "reboot", uint64(time.Now().Add(100*time.Millisecond).UnixMicro()))
	w.expect(shutdown.Prepare)
	r.AwaitDown(t)
}

func refuses(t *testing.T, r *rig) {
	r.raise()
	w := r.watch()
	lock := r.lock(r.logind)
	r.login("PowerOff", false)
	w.expect(shutdown.Prepare)
	other := newLogind(t, r.Bed, systemd.LogindOptions{})
	if _, err := other.Inhibit(t.Context(), "too late"); !errors.Is(err, shutdown.ErrShutdownInProgress) {
		t.Errorf("Inhibit() = %v during a shutdown, want %v", err, shutdown.ErrShutdownInProgress)
	}
	again := r.lock(r.logind) // a lock that is held is returned again
	r.expectLocks(1)
	if err := errors.Join(lock.Close(), again.Close()); err != nil {
		t.Errorf("Close() = %v, want nil", err)
	}
	r.AwaitDown(t)
	if _, err := r.logind.Inhibit(t.Context(), "too late"); !errors.Is(err, shutdown.ErrShutdownInProgress) {
		t.Errorf("Inhibit() = %v after the release, want %v", err, shutdown.ErrShutdownInProgress)
	}
}

func cancels(t *testing.T, r *rig) {
	w := r.watch()
	for range 3 {
		lock := r.lock(r.logind)
		r.login("Reboot", false)
		w.expect(shutdown.Prepare)
		if err := lock.Close(); err != nil {
			t.Fatalf("Close() = %v, want nil", err)
		}
		r.AwaitDown(t)
		r.AbortShutdown(t)
		w.expect(shutdown.Cancel)
		r.expectPreparing(false)
	}
	r.lock(r.logind)
	r.expectLocks(1)
}

func survivesLogind(t *testing.T, r *rig) {
	r.raise()
	w := r.watch()
	r.lock(r.logind)
	for range 2 {
		r.KillLogind(t)
		w.expect(shutdown.Lost)
		r.StartLogind(t)
		w.expect(shutdown.Returned)
		r.expectLocks(1)
	}
	lock := r.lock(r.logind)
	r.expectLocks(1)
	r.login("Reboot", false)
	w.expect(shutdown.Prepare)
	if err := lock.Close(); err != nil {
		t.Fatalf("Close() = %v, want nil", err)
	}
	r.AwaitDown(t)
}

func forgets(t *testing.T, r *rig) {
	r.raise()
	w := r.watch()
	r.lock(r.logind)
	r.login("Reboot", false)
	w.expect(shutdown.Prepare)
	r.KillLogind(t)
	w.expect(shutdown.Lost)
	r.StartLogind(t)
	w.expect(shutdown.Returned)
	r.expectPreparing(false)
	r.expectLocks(1)
	r.login("Reboot", false)
	w.expect(shutdown.Prepare) // announced again, by a logind that knows of no earlier one
}

func survivesBus(t *testing.T, r *rig) {
	w := r.watch()
	r.lock(r.logind)
	r.KillBus(t)
	select {
	case err := <-w.ended:
		if !errors.Is(err, systemd.ErrNoBus) {
			t.Fatalf("Watch() = %v after the bus died, want %v", err, systemd.ErrNoBus)
		}
	case <-time.After(patience):
		t.Fatalf("Watch() has not returned %v after the bus died", patience)
	}
	r.StartBus(t)
	w = r.watch()
	lock := r.lock(r.logind)
	r.expectLocks(1)
	r.login("Reboot", false)
	w.expect(shutdown.Prepare)
	if err := lock.Close(); err != nil {
		t.Fatalf("Close() = %v, want nil", err)
	}
	r.AwaitDown(t)
}

func missing(t *testing.T, r *rig) {
	r.KillLogind(t)
	if _, err := r.logind.MaxDelay(t.Context()); !errors.Is(err, systemd.ErrNoLogind) {
		t.Errorf("MaxDelay() = %v without logind, want %v", err, systemd.ErrNoLogind)
	}
	if _, err := r.logind.Inhibit(t.Context(), "in vain"); !errors.Is(err, systemd.ErrNoLogind) {
		t.Errorf("Inhibit() = %v without logind, want %v", err, systemd.ErrNoLogind)
	}
	w := r.watch() // Watch waits until logind is there
	r.StartLogind(t)
	w.expect(shutdown.Returned)
	r.expectPreparing(false)
	r.KillBus(t)
	if _, err := r.logind.Preparing(t.Context()); !errors.Is(err, systemd.ErrNoBus) {
		t.Errorf("Preparing() = %v without a bus, want %v", err, systemd.ErrNoBus)
	}
	if err := r.logind.Watch(t.Context(), nil); !errors.Is(err, systemd.ErrNoBus) {
		t.Errorf("Watch() = %v without a bus, want %v", err, systemd.ErrNoBus)
	}
	r.StartBus(t)
	r.expectPreparing(false)
}

func leavesNothing(t *testing.T, r *rig) {
	for range 3 { // opens descriptors that stay open
		r.lock(r.logind).Close()
	}
	r.expectLocks(0)
	before := descriptorsOpen(t)
	for range 50 {
		lock := r.lock(r.logind)
		if err := errors.Join(lock.Close(), lock.Close()); err != nil {
			t.Fatalf("Close() = %v, want nil", err)
		}
	}
	r.expectLocks(0)
	r.eventually(func() bool { return descriptorsOpen(t) <= before }, "%d descriptors open", before)
}

// descriptorsOpen returns the number of open descriptors of this process.
func descriptorsOpen(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}
