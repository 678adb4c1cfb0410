//go:build integration

package e2e_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/systemd"
	"hostler.io/hostler/test/lab"
)

// serviceManager receives the agent's notifications and keeps its descriptors.
func serviceManager(t testing.TB) *lab.Notify {
	t.Helper()
	n, err := lab.StartNotify(2)
	check(t, err)
	t.Cleanup(func() { check(t, n.Close()) })
	return n
}

// logind starts a logind without a scheduled shutdown.
func logind(t testing.TB) *lab.Login {
	t.Helper()
	// logind restores a shutdown that an earlier one had scheduled.
	check(t, os.RemoveAll("/run/systemd/shutdown"))
	return lab.LoginFor(t, lab.LoginOptions{})
}

// locks returns hostler's locks in logind's list.
func locks(t testing.TB, login *lab.Login) []lab.InhibitorLock {
	t.Helper()
	all, err := login.Inhibitors(t.Context())
	check(t, err)
	return slices.DeleteFunc(all, func(l lab.InhibitorLock) bool { return l.Who != "hostler" })
}

// wantLocks waits until logind lists that many locks of hostler.
func wantLocks(t testing.TB, login *lab.Login, when string, n int) {
	t.Helper()
	eventually(t, when+" logind lists the wanted number of locks", func() bool { return len(locks(t, login)) == n })
}

// wantDelay waits until logind grants that delay: an agent that ends reduces it with a signal. Then
// it checks whether hostler's drop-in exists.
func wantDelay(t testing.TB, login *lab.Login, when string, want time.Duration, dropIn bool) {
	t.Helper()
	eventually(t, fmt.Sprintf("%s logind grants %v", when, want), func() bool {
		got, err := login.InhibitDelayMax(t.Context())
		check(t, err)
		return got == want
	})
	if _, err := os.Stat(systemd.DropInPath); err == nil != dropIn {
		t.Errorf("%s Stat(%s) = %v, want it there: %v", when, systemd.DropInPath, err, dropIn)
	}
}

func TestARestartOfTheServiceIsNoShutdown(t *testing.T) {
	login, manager := logind(t), serviceManager(t)
	wantDelay(t, login, "before the agent", 5*time.Second, false)
	web := pod(t, "web", nil, 0, lab.ServeFor(0))
	database := pod(t, "database", critical, 0, lab.ServeFor(0))
	webBefore, databaseBefore := mainOf(t, web), mainOf(t, database)

	a := newAgent(t, quick+"shutdown: {gracePeriod: 20s, gracePeriodCriticalPods: 5s}")
	a.notify = manager
	a.start()
	s := a.awaitGuard(shutdown.Armed)
	granted := s.Shutdown.InhibitDelayMax.Duration
	if granted < 20*time.Second || s.Shutdown.InhibitDelaySource != systemd.DropInPath {
		t.Errorf("granted %v by %q, want at least 20s by %s", granted, s.Shutdown.InhibitDelaySource, systemd.DropInPath)
	}
	wantDelay(t, login, "while the agent runs", granted, true)
	wantLocks(t, login, "while the agent runs", 1)
	if l := locks(t, login)[0]; l.What != "shutdown" || l.Mode != "delay" || l.Why == "" {
		t.Errorf("lock = %+v, want a delay lock on shutdown that says why", l)
	}
	keepsLock := func() bool { return slices.Equal(manager.Stored(), []string{systemd.StoredLock}) }
	eventually(t, "the service manager keeps the lock", keepsLock)

	a.stop()
	wantDelay(t, login, "after SIGTERM", 5*time.Second, false)
	wantLocks(t, login, "after SIGTERM, in the service manager's keeping,", 1)
	a.start()
	a.awaitGuard(shutdown.Armed)
	wantDelay(t, login, "after a restart", granted, true)
	wantLocks(t, login, "after a restart", 1)

	a.kill()
	wantLocks(t, login, "after SIGKILL", 1)
	a.start()
	a.awaitGuard(shutdown.Armed)
	wantLocks(t, login, "after a crash", 1)
	eventually(t, "after a crash the service manager keeps the lock, once", keepsLock)

	// logind and the bus restart as well.
	for _, loss := range []struct {
		what string
		do   func(context.Context) error
	}{{"logind", login.RestartLogind}, {"the bus", login.RestartBus}} {
		noticed := len(a.logLines("state=Disarmed was=Armed"))
		check(t, loss.do(t.Context()))
		eventually(t, "the loss of "+loss.what+" is noticed", func() bool {
			return len(a.logLines("state=Disarmed was=Armed")) > noticed
		})
		a.awaitGuard(shutdown.Armed)
		wantLocks(t, login, "after a restart of "+loss.what, 1)
	}

	a.stop()
	untouched(t, web, webBefore)
	untouched(t, database, databaseBefore)
	if n := len(manager.Stored()); n != 1 {
		t.Errorf("the service manager keeps %d descriptors at the end, want the lock", n)
	}
}

func TestWithoutAServiceManagerTheLockEndsWithTheAgent(t *testing.T) {
	login := logind(t)
	a := startAgent(t, quick)
	a.awaitGuard(shutdown.Armed)
	wantLocks(t, login, "while the agent runs", 1)
	a.stop()
	wantLocks(t, login, "after SIGTERM", 0)
	wantDelay(t, login, "after SIGTERM", 5*time.Second, false)

	a.configure(quick + "shutdown: {gracePeriod: 0s}")
	a.start()
	s := a.await("the guard says that it is switched off", func(s api.Status) bool { return s.Shutdown.Reason == "switched off in the configuration" })
	if s.Shutdown.State != shutdown.Disarmed || len(locks(t, login)) != 0 {
		t.Errorf("with gracePeriod 0s: %v and locks %v, want Disarmed and none", s.Shutdown.State, locks(t, login))
	}
	wantDelay(t, login, "with gracePeriod 0s", 5*time.Second, false)
	a.stop()
}

func TestTheServiceManagerIsNotifiedOfWhatTheAgentDoes(t *testing.T) {
	logind(t)
	manager := serviceManager(t)
	a := newAgent(t, quick)
	a.notify, a.env = manager, []string{"WATCHDOG_USEC=2000000"}
	reported := func(field, value string, since time.Time) time.Time {
		t.Helper()
		m, err := manager.Await(within(t), field, value, since)
		check(t, err)
		return m.Time
	}

	began := time.Now()
	a.start()
	up := reported("READY", "1", began)
	if _, err := os.Stat(a.socket); err != nil {
		t.Errorf("Stat of the socket at READY=1 = %v, want it there", err)
	}
	a.awaitGuard(shutdown.Armed)
	armed := reported("STATUS", "shutdown guard Armed: shutdown lock held", began)
	reported("WATCHDOG", "1", reported("WATCHDOG", "1", reported("WATCHDOG", "1", up)))

	reloaded := time.Now()
	a.signal(syscall.SIGHUP)
	again := reported("READY", "1", reported("RELOADING", "1", reloaded))
	i := slices.IndexFunc(manager.Notifications(), func(n lab.Notification) bool { return n.Fields["RELOADING"] == "1" })
	if usec := manager.Notifications()[i].Fields["MONOTONIC_USEC"]; usec == "" {
		t.Error("RELOADING=1 came without MONOTONIC_USEC, want it for Type=notify-reload")
	}
	a.stop()
	reported("STOPPING", "1", again)
	for _, n := range manager.Notifications() {
		if n.Fields["EXTEND_TIMEOUT_USEC"] != "" && n.Time.After(armed) {
			t.Errorf("the agent requested more time to stop, want none: it left the pods alone")
		}
	}
}
