//go:build integration

package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/agent/doctor"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/status"
	"hostler.io/hostler/systemd"
	"hostler.io/hostler/systemd/logindconf"
	"hostler.io/hostler/test/lab"
)

// wanting has phases that need 36 s with their margin.
const wanting = quick + "shutdown: {gracePeriod: 30s, gracePeriodCriticalPods: 10s}\n"

// diagnose runs hostler doctor, and checks that its exit code matches its findings. Of the checks
// named silent, what they query does not answer.
func (a *agent) diagnose(silent ...string) doctor.Report {
	a.t.Helper()
	r, got := diagnosis(a.t, func() answer { return a.hostler("doctor", "-o", "json") }, silent...)
	want := 0
	if r.Failed() {
		want = 1
	}
	if got.code != want {
		a.t.Errorf("hostler doctor ended with %d, want %d for %+v", got.code, want, r)
	}
	return r
}

// doctor returns the report of hostler doctor as JSON.
func (a *agent) doctor() string {
	a.t.Helper()
	return a.hostler("doctor", "-o", "json").out
}

// diagnosis repeats hostler doctor while something has not answered it in time: it waits only seconds.
func diagnosis(t testing.TB, run func() answer, silent ...string) (r doctor.Report, got answer) {
	t.Helper()
	eventually(t, "all answer hostler doctor in time", func() bool {
		r, got = doctor.Report{}, run()
		if err := json.Unmarshal([]byte(got.out), &r); err != nil {
			t.Fatalf("hostler doctor printed no JSON: %v\n%s%s", err, got.out, got.err)
		}
		return !slices.ContainsFunc(r.Checks, func(c doctor.Check) bool {
			late := strings.Contains(c.Message, context.DeadlineExceeded.Error()) || strings.Contains(c.Message, "is the host busy?")
			return late && !slices.Contains(silent, c.Name)
		})
	})
	return r, got
}

// found checks the status of one check, and parts of its message and hint.
func found(t testing.TB, r doctor.Report, name string, status doctor.Status, parts ...string) {
	t.Helper()
	for _, c := range r.Checks {
		if c.Name != name {
			continue
		}
		if c.Status != status {
			t.Errorf("check %+v, want it %s", c, status)
		}
		mentions(t, "check "+name, c.Message+" | "+c.Hint, parts...)
		return
	}
	t.Errorf("hostler doctor has no check %s: %+v", name, r.Checks)
}

// awaitProtection waits until the condition has a reason.
func (a *agent) awaitProtection(reason string) api.Status {
	a.t.Helper()
	return a.await("ShutdownProtected has reason "+reason, func(s api.Status) bool { return condition(s, status.ShutdownProtected).Reason == reason })
}

// installUnits gives the service manager hostler's unit as packaged, and a container's scope.
func installUnits(t testing.TB, login *lab.Login, pid int) {
	t.Helper()
	login.Manager.SetUnit("hostler.service", map[string]any{
		"UnitFileState": "enabled", "Type": "notify", "NotifyAccess": "main", "TimeoutStopUSec": uint64(30_000_000),
		"FileDescriptorStoreMax": uint32(2), "MainPID": uint32(pid), "After": []string{"dbus.service", "systemd-logind.service", "containerd.service"},
		"WatchdogUSec": uint64(60_000_000),
	})
	scope(login, "cri-containerd-1.scope", "hostler.service")
	dropIn := "/usr/lib/systemd/system/cri-containerd-.scope.d/10-hostler.conf"
	check(t, os.MkdirAll(filepath.Dir(dropIn), 0o755))
	check(t, os.WriteFile(dropIn, []byte("[Unit]\nBefore=hostler.service\n"), 0o644))
	t.Cleanup(func() { check(t, os.RemoveAll(filepath.Dir(dropIn))) })
}

func scope(login *lab.Login, name string, before ...string) {
	login.Manager.SetUnit(name, map[string]any{"Before": before})
}

// setting writes a drop-in of logind until the test ends.
func setting(t testing.TB, path, value string) {
	t.Helper()
	check(t, os.MkdirAll(filepath.Dir(path), 0o755))
	check(t, os.WriteFile(path, []byte("[Login]\nInhibitDelayMaxSec="+value+"\n"), 0o644))
	t.Cleanup(func() { _ = os.Remove(path) }) // the test may have removed it
}

func TestDoctorFindsNothingOnAHostThatIsProtected(t *testing.T) {
	login := logind(t)
	a := startAgent(t, wanting)
	installUnits(t, login, a.process.PID)
	a.awaitProtection(status.ReasonArmed)
	r := a.diagnose()
	if !r.Protected || r.Message != "" || r.Count(doctor.OK) != len(r.Checks) || len(r.Checks) < 14 {
		t.Errorf("hostler doctor = %+v, want all ok", r)
	}
	found(t, r, "lock", doctor.OK, "hostler holds the shutdown lock, as pid")
	found(t, r, "delay", doctor.OK, "logind grants 36s, set by "+systemd.DropInPath)
	eventuallyMentions(t, "hostler doctor", func() string { return a.hostler("doctor").out }, "pods are protected at a shutdown: all")
	mentions(t, "hostler doctor -o wide", a.hostler("doctor", "-o", "wide").out, "CHECK", "FIX", "other-locks")

	// Other locks, and drop-ins that systemd has not read, are reported.
	lock, err := login.Inhibit(t.Context(), "database", "flushing")
	check(t, err)
	defer lock.Close()
	scope(login, "cri-containerd-2.scope")
	login.Manager.SetUnit("reboot.target", map[string]any{"ActiveState": "inactive", "JobTimeoutUSec": uint64(20_000_000)})
	r = a.diagnose()
	found(t, r, "other-locks", doctor.OK, "a shutdown also waits for database", "flushing")
	found(t, r, "scopes", doctor.Warn, "1 of 2 container scopes", "cri-containerd-2.scope", "systemctl daemon-reload")
	found(t, r, "job-timeouts", doctor.Warn, "reboot.target is forced after 20s")
	a.stop()
}

// TestFilesThatOverrideTheDropInAreNoticedAndNamed is about the agent alone: it checks by itself
// every five minutes at most.
func TestFilesThatOverrideTheDropInAreNoticedAndNamed(t *testing.T) {
	const early, late, masking = "/usr/lib/systemd/logind.conf.d/unattended-upgrades-logind-maxdelay.conf", "/etc/systemd/logind.conf.d/zzz.conf", "/etc/systemd/logind.conf.d/zz-hostler.conf"
	login := logind(t)
	setting(t, early, "30")
	check(t, login.RestartLogind(t.Context()))
	a := startAgent(t, wanting)
	a.awaitProtection(status.ReasonArmed) // a file that sorts earlier has no effect
	wantDelay(t, login, "against a drop-in that sorts before,", 36*time.Second, true)
	reread := func() { check(t, login.Logind.Signal(1)) }

	// The file is written but not read: nothing is lost yet, and doctor warns.
	setting(t, late, "8")
	r := a.diagnose()
	if !r.Protected {
		t.Errorf("hostler doctor = %+v, want it protected until logind reads %s", r, late)
	}
	found(t, r, "delay-files", doctor.Warn, "would grant only 8s", "set by "+late)

	reread()
	s := a.awaitProtection(status.ReasonDelayTooShort)
	mentions(t, "message of ShutdownProtected", condition(s, status.ShutdownProtected).Message, "grants only 8s of the 36s needed", late, "remove it")
	if s.Shutdown.InhibitDelaySource != late || s.Shutdown.InhibitDelayNeeded.Duration != 36*time.Second {
		t.Errorf("status has delay source %q and need %v, want %s and 36s", s.Shutdown.InhibitDelaySource, s.Shutdown.InhibitDelayNeeded, late)
	}
	r = a.diagnose()
	if r.Protected {
		t.Error("hostler doctor says that the host is protected, want not")
	}
	found(t, r, "delay", doctor.Fail, "grants 8s, set by "+late, "shortened to", late+" sets InhibitDelayMaxSec= to 8s", "36 or more")
	mentions(t, "hostler status", a.screen(), "8s of the 36s", late, "logind grants only 8s of the 36s needed")
	mentions(t, "hostler shutdown plan", onOneLine(a.prints("shutdown", "plan")), "logind grants only 8s", late, "remove it")
	metric(t, a, "hostler_shutdown_protected", "0")
	metric(t, a, "hostler_shutdown_delay_granted_seconds", "8")
	metric(t, a, "hostler_shutdown_delay_needed_seconds", "36")

	// After the documented fix, the agent makes logind read its files.
	check(t, os.Remove(late))
	a.awaitProtection(status.ReasonArmed)
	wantDelay(t, login, "once the other is gone,", 36*time.Second, true)
	metric(t, a, "hostler_shutdown_protected", "1")

	// Somebody removes the drop-in: before logind has noticed, and at the same time.
	for range 3 {
		check(t, os.Remove(systemd.DropInPath))
		reread()
		eventually(t, "the drop-in is back, and counts", func() bool {
			granted, err := login.InhibitDelayMax(t.Context())
			_, there := os.Stat(systemd.DropInPath)
			return err == nil && granted == 36*time.Second && there == nil
		})
	}

	check(t, os.Symlink("/dev/null", masking))
	t.Cleanup(func() { _ = os.Remove(masking) })
	check(t, login.RestartLogind(t.Context()))
	s = a.awaitProtection(status.ReasonDelayTooShort)
	mentions(t, "message of ShutdownProtected", condition(s, status.ShutdownProtected).Message, "grants only 30s of the 36s needed", masking+" masks", "remove it")
	found(t, a.diagnose(), "delay", doctor.Fail, "set by "+early, "rm "+masking)
	check(t, os.Remove(masking))
	a.awaitProtection(status.ReasonArmed)

	// Invalid files: logind ignores them, and so does hostler.
	setting(t, late, "soon")
	check(t, os.MkdirAll("/etc/systemd/logind.conf.d/zzzz.conf", 0o000))
	check(t, os.Symlink("nowhere", "/etc/systemd/logind.conf.d/zzzzz.conf"))
	t.Cleanup(func() {
		check(t, errors.Join(os.Remove("/etc/systemd/logind.conf.d/zzzz.conf"), os.Remove("/etc/systemd/logind.conf.d/zzzzz.conf")))
	})
	reread()
	r = a.diagnose()
	found(t, r, "delay-files", doctor.Warn, late+" sets InhibitDelayMaxSec=soon", "zzzzz.conf")
	found(t, r, "delay", doctor.OK, "grants 36s")
	a.stop()
	wantDelay(t, login, "after the service has stopped,", 30*time.Second, false)
}

// A drop-in of the service makes the folder of logind's drop-in read-only. A restart of logind, or
// systemd-tmpfiles, changes nothing.
func TestASettingThatMakesTheDropInReadOnlyIsTheFix(t *testing.T) {
	logind(t)
	check(t, os.MkdirAll(filepath.Dir(systemd.DropInPath), 0o755))
	a := newAgent(t, wanting)
	a.dropIn = []string{"ReadOnlyPaths=" + filepath.Dir(systemd.DropInPath)}
	a.start()
	const fix = "remove the setting that makes /run/systemd/logind.conf.d read-only"
	mentions(t, "message of ShutdownProtected", condition(a.awaitProtection(status.ReasonDelayTooShort), status.ShutdownProtected).Message, fix)
	found(t, a.diagnose(), "delay", doctor.Fail, fix)
	a.stop()
}

// metric checks a metric at the agent's socket.
func metric(t testing.TB, a *agent, name, want string) {
	t.Helper()
	if got := metricNames(t, a.onSocket(), "http://hostler/metrics")[name]; got != want {
		t.Errorf("%s = %q, want %s", name, got, want)
	}
}

func TestDoctorSaysWhatIsMissingAndThatItIsBack(t *testing.T) {
	login := logind(t)
	a := startAgent(t, wanting)
	a.awaitProtection(status.ReasonArmed)
	check(t, login.Logind.Kill())
	s := a.awaitProtection(status.ReasonNoLogind)
	if got := condition(s, status.ShutdownProtected); got.Status != corev1.ConditionFalse {
		t.Errorf("ShutdownProtected = %+v without logind, want False", got)
	}
	r := a.diagnose()
	found(t, r, "protection", doctor.Fail, "NoLogind")
	found(t, r, "logind", doctor.Fail, "systemctl restart systemd-logind")
	check(t, login.StartLogind(t.Context()))
	a.awaitProtection(status.ReasonArmed)

	check(t, errors.Join(login.Bus.Kill(), login.Logind.Kill()))
	a.awaitProtection(status.ReasonNoBus)
	found(t, a.diagnose(), "dbus", doctor.Fail, "cannot reach the system bus", "systemctl start dbus")
	check(t, login.RestartBus(t.Context()))
	a.awaitProtection(status.ReasonArmed)

	// The lock is removed from logind's records, and the new logind does not know it.
	// is, and a new logind knows of none.
	entries, err := os.ReadDir("/run/systemd/inhibit")
	check(t, err)
	for _, e := range entries {
		check(t, os.Remove(filepath.Join("/run/systemd/inhibit", e.Name())))
	}
	check(t, login.RestartLogind(t.Context()))
	wantLocks(t, login, "after its lock was lost", 1)
	a.awaitProtection(status.ReasonArmed)
	r = a.diagnose()
	found(t, r, "lock", doctor.OK, "hostler holds the shutdown lock")

	check(t, containerd.Pause())
	t.Cleanup(func() { check(t, containerd.Continue()) })
	a.awaitProtection(status.ReasonPodsOutOfReach)
	found(t, a.diagnose("runtimes", "image-filesystem"), "runtimes", doctor.Fail, "containerd", "is not ready")
	check(t, containerd.Continue())
	a.awaitProtection(status.ReasonArmed)

	a.kill()
	wantDelay(t, login, "after a crash", 36*time.Second, true)
	a.configure(quick + "shutdown: {enabled: false}\n")
	a.start()
	a.awaitProtection(status.ReasonSwitchedOff)
	wantDelay(t, login, "switched off after a crash,", logindconf.DefaultDelay, false)
	r = a.diagnose()
	if r.Protected || r.Failed() {
		t.Errorf("hostler doctor = %+v, want it not protected, which is no fault", r)
	}
	found(t, r, "protection", doctor.Warn, "as configured", "shutdown.enabled: auto in "+a.config+":")
	a.stop()
}

func TestDoctorBesideAKubelet(t *testing.T) {
	const config, file = "/var/lib/kubelet/config.yaml", "/etc/systemd/logind.conf.d/99-kubelet.conf"
	check(t, os.MkdirAll(filepath.Dir(config), 0o755))
	grace := func(d string) { check(t, os.WriteFile(config, []byte("shutdownGracePeriod: "+d+"\n"), 0o644)) }
	t.Cleanup(func() { check(t, os.RemoveAll(filepath.Dir(config))) })
	login := logind(t)
	a := startAgent(t, wanting)
	a.awaitProtection(status.ReasonArmed)
	kubelet(t)
	grace("30s")
	found(t, a.diagnose(), "kubelet", doctor.Warn, "holds no lock", "30s")

	// Enough is granted, so it writes no file and relies on hostler's.
	release := kubeletsLock(t)
	a.awaitGuard(shutdown.Delegated)
	a.awaitProtection(status.ReasonDelegated)
	wantLocks(t, login, "beside a kubelet's", 0)
	wantDelay(t, login, "for the kubelet", 36*time.Second, true)
	r := a.diagnose()
	if !r.Protected {
		t.Errorf("hostler doctor = %+v, want it protected by the kubelet", r)
	}
	found(t, r, "kubelet", doctor.OK, "the kubelet guards the shutdown", "30s", "36s")

	// It needs more and writes its own file, which hostler's must not reduce.
	grace("1m")
	found(t, a.diagnose(), "kubelet", doctor.Fail, "needs 1m0s", "rm "+systemd.DropInPath)
	setting(t, file, "60")
	eventually(t, "hostler's drop-in yields", func() bool {
		granted, err := login.InhibitDelayMax(t.Context())
		_, there := os.Stat(systemd.DropInPath)
		return err == nil && granted == time.Minute && errors.Is(there, os.ErrNotExist)
	})
	found(t, a.diagnose(), "kubelet", doctor.OK, "1m0s")

	// Its lock is released, and hostler takes over at once.
	release()
	a.awaitGuard(shutdown.Armed)
	wantLocks(t, login, "once the kubelet's is gone", 1)
	wantDelay(t, login, "once the kubelet's is gone,", time.Minute, false)
	a.stop()
}

func TestDoctorWithoutAnAgent(t *testing.T) {
	cleanDefaults(t)
	login := logind(t)
	installContainerd(t, containerd)
	a := newBareAgent(t)
	got := a.hostler("doctor", "--socket", a.folder+"/none")
	if got.code != 3 {
		t.Errorf("hostler doctor --socket = %d, want 3: nobody is there", got.code)
	}

	diagnose := func() doctor.Report {
		t.Helper()
		r, got := diagnosis(t, func() answer { return command(t, nil, "doctor", "-o", "json") })
		if got.code != 1 {
			t.Fatalf("hostler doctor = %d\n%s%s, want 1", got.code, got.out, got.err)
		}
		return r
	}
	r := diagnose()
	if r.Protected || r.Message == "" {
		t.Errorf("hostler doctor = %+v, want it unprotected, and to say that no agent answers", r)
	}
	if n := r.Count(doctor.Fail); n != 1 {
		t.Errorf("hostler doctor fails %d checks, want one for the one cause: %+v", n, r.Checks)
	}
	found(t, r, "agent", doctor.Fail, "hostler is not running, so that a shutdown would not wait", "no agent answers at /run/hostler/hostler.sock", "systemctl start hostler")
	found(t, r, "protection", doctor.Unknown, "not checked: the agent is not running", "see check agent")
	found(t, r, "lock", doctor.Unknown, "not checked: the agent is not running")
	found(t, r, "runtimes", doctor.OK, "ready: containerd ")
	found(t, r, "unit", doctor.Warn, "not-found")
	found(t, r, "delay-files", doctor.OK)

	// After a crash, doctor names the remains and how to remove them.
	manager := serviceManager(t)
	a.notify = manager
	a.start()
	a.awaitGuard(shutdown.Armed)
	a.kill()
	wantLocks(t, login, "kept by systemd", 1)
	r = diagnose()
	found(t, r, "lock", doctor.Warn, "no agent answers")
	found(t, r, "delay-files", doctor.Warn, "left by an agent", "rm "+systemd.DropInPath)

	setting(t, "/etc/systemd/logind.conf.d/zzz.conf", "8")
	found(t, diagnose(), "delay", doctor.Fail, "zzz.conf", "36 or more")
	check(t, login.Bus.Kill())
	found(t, diagnose(), "dbus", doctor.Fail, "systemctl start dbus")

	text := command(t, nil, "doctor")
	mentions(t, "hostler doctor", text.out, "no agent answers", "NOT PROTECTED", "FAIL")
	if _, err := os.Stat(systemd.DropInPath); err != nil {
		t.Errorf("Stat(%s) = %v, want it as it was: doctor changes nothing", systemd.DropInPath, err)
	}
}
