//go:build integration

package lab_test

import (
	"context"
	"slices"
	"syscall"
	"testing"
	"time"

	systemdbus "github.com/coreos/go-systemd/v22/dbus"
	"github.com/godbus/dbus/v5"

	"hostler.io/hostler/test/lab"
)

func TestLogindDelaysARebootForALock(t *testing.T) {
	login := lab.LoginFor(t, lab.LoginOptions{InhibitDelayMax: 30 * time.Second})
	if got, err := login.InhibitDelayMax(t.Context()); err != nil || got != 30*time.Second {
		t.Fatalf("InhibitDelayMax() = %v, %v, want 30s", got, err)
	}
	lock, err := login.Inhibit(t.Context(), "tester", "to see it wait")
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	locks, err := login.Inhibitors(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(locks, func(l lab.InhibitorLock) bool {
		return l.Who == "tester" && l.What == "shutdown" && l.Mode == "delay" && l.Why == "to see it wait"
	}) {
		t.Fatalf("Inhibitors() = %+v, want the tester's delay lock", locks)
	}

	asked := time.Now()
	if err := login.Reboot(t.Context()); err != nil {
		t.Fatal(err)
	}
	if preparing, err := login.Preparing(t.Context()); err != nil || !preparing {
		t.Fatalf("Preparing() = %v, %v, want true", preparing, err)
	}
	if started := login.Manager.StartedUnits(); len(started) != 0 {
		t.Fatalf("StartedUnits() = %+v before the lock is released, want none", started)
	}
	released := time.Now()
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	unit, err := login.Manager.AwaitStart(within(t, 5*time.Minute), "reboot.target", asked)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("reboot.target started %v after the release", unit.Time.Sub(released))

	if err := login.Manager.CancelJobs(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the shutdown is cancelled", func() bool {
		preparing, err := login.Preparing(t.Context())
		return err == nil && !preparing
	})
}

func TestLogindGivesUpOnALockAfterItsDelay(t *testing.T) {
	login := lab.LoginFor(t, lab.LoginOptions{InhibitDelayMax: time.Second})
	lock, err := login.Inhibit(t.Context(), "tester", "to be run over")
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	asked := time.Now()
	if err := login.PowerOff(t.Context()); err != nil {
		t.Fatal(err)
	}
	unit, err := login.Manager.AwaitStart(within(t, 5*time.Minute), "poweroff.target", asked)
	if err != nil {
		t.Fatal(err)
	}
	if waited := unit.Time.Sub(asked); waited < time.Second {
		t.Errorf("poweroff.target started after %v, want 1s or more", waited)
	}
}

func TestLogindIsScheduledAndCancelled(t *testing.T) {
	login := lab.LoginFor(t, lab.LoginOptions{})
	if err := login.Schedule(t.Context(), "reboot", time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if was, err := login.CancelScheduled(t.Context()); err != nil || !was {
		t.Errorf("CancelScheduled() = %v, %v, want true", was, err)
	}
	if was, err := login.CancelScheduled(t.Context()); err != nil || was {
		t.Errorf("CancelScheduled() = %v, %v after a cancellation, want false", was, err)
	}
}

func TestLocksSurviveARestartOfLogind(t *testing.T) {
	login := lab.LoginFor(t, lab.LoginOptions{InhibitDelayMax: 10 * time.Second})
	lock, err := login.Inhibit(t.Context(), "tester", "to survive")
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	held := func(when string) {
		t.Helper()
		locks, err := login.Inhibitors(t.Context())
		if err != nil || !slices.ContainsFunc(locks, func(l lab.InhibitorLock) bool { return l.Who == "tester" }) {
			t.Errorf("Inhibitors() = %+v, %v after %s, want the tester's lock", locks, err, when)
		}
	}
	if err := login.Logind.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := login.StartLogind(t.Context()); err != nil {
		t.Fatal(err)
	}
	held("a crash of logind")
	if err := login.RestartLogind(t.Context()); err != nil {
		t.Fatal(err)
	}
	held("a restart of logind")
	if err := login.RestartBus(t.Context()); err != nil {
		t.Fatal(err)
	}
	held("a restart of the bus")
}

func TestManagerReloadsLogind(t *testing.T) {
	login := lab.LoginFor(t, lab.LoginOptions{InhibitDelayMax: 7 * time.Second})
	for name, connect := range map[string]func(context.Context) (*systemdbus.Conn, error){
		"over the bus":                systemdbus.NewSystemConnectionContext,
		"over the private connection": systemdbus.NewSystemdConnectionContext,
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := connect(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			state, err := conn.SystemStateContext(t.Context())
			if err != nil || state.Value.Value() != "running" {
				t.Fatalf("SystemState = %v, %v, want running", state, err)
			}
			if _, err := conn.GetUnitPropertyContext(t.Context(), "systemd-logind.service", "CanReload"); err != nil {
				t.Fatal(err)
			}
			writeLogindDropIn(t, "[Login]\nInhibitDelayMaxSec=21\n")
			if err := conn.KillUnitWithTarget(t.Context(), "systemd-logind.service", systemdbus.Main, int32(syscall.SIGHUP)); err != nil {
				t.Fatal(err)
			}
			eventually(t, "logind reads the drop-in", func() bool {
				d, err := login.InhibitDelayMax(t.Context())
				return err == nil && d == 21*time.Second
			})
			writeLogindDropIn(t, "")
			done := make(chan string, 1)
			_, err = conn.ReloadUnitContext(t.Context(), "systemd-logind.service", "replace", done)
			var fault dbus.Error
			switch {
			case err == nil:
				if result := <-done; result != "done" {
					t.Errorf("ReloadUnit's job = %s, want done", result)
				}
			case asDBusError(err, &fault) && fault.Name == "org.freedesktop.systemd1.JobTypeNotApplicable":
				if err := login.Logind.Signal(syscall.SIGHUP); err != nil {
					t.Fatal(err)
				}
			default:
				t.Fatal(err)
			}
			eventually(t, "logind forgets the drop-in", func() bool {
				d, err := login.InhibitDelayMax(t.Context())
				return err == nil && d == 7*time.Second
			})
		})
	}
}
