//go:build integration

package e2e_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/status"
	"hostler.io/hostler/test/lab"
)

// knownSocket is where a containerd is looked for.
const knownSocket = "/run/containerd/containerd.sock"

// installContainerd lets the shared containerd be found, until the test ends.
func installContainerd(t testing.TB) {
	t.Helper()
	check(t, os.MkdirAll(filepath.Dir(knownSocket), 0o755))
	check(t, os.Symlink(containerd.Endpoint[len("unix://"):], knownSocket))
	t.Cleanup(func() { check(t, os.Remove(knownSocket)) })
}

// cleanDefaults removes what an agent without configuration leaves.
func cleanDefaults(t testing.TB) {
	t.Helper()
	remove := func() { check(t, errors.Join(os.RemoveAll("/var/lib/hostler"), os.RemoveAll("/run/hostler"))) }
	remove()
	t.Cleanup(remove)
	if _, err := os.Stat("/etc/hostler"); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("the lab has a configuration: Stat(/etc/hostler) = %v", err)
	}
}

func TestWithNothingInstalledTheAgentGoesOnAndSaysWhatIsMissing(t *testing.T) {
	cleanDefaults(t)
	a := newBareAgent(t)
	began := time.Now()
	a.start()

	s := a.await("the first lease and the first look at the host", func(s api.Status) bool {
		return s.Lease != nil && condition(s, corev1.NodeReady).Reason == status.ReasonNoRuntime && condition(s, status.ShutdownProtected).Status == corev1.ConditionFalse
	})
	first := s.Lease.Spec.RenewTime.Time
	if took := first.Sub(began); took > 5*time.Second {
		t.Errorf("the first lease came %v after the start, want it at once", took)
	}
	mentions(t, "message of Ready", condition(s, corev1.NodeReady).Message, "no container runtime found")
	mentions(t, "message of ShutdownProtected", condition(s, status.ShutdownProtected).Message, "bus")
	mentions(t, "reason of Disarmed", s.Shutdown.Reason, "bus")
	if len(s.Runtimes) != 0 || s.Shutdown.State != shutdown.Disarmed {
		t.Errorf("status has runtimes %v and guard %v, want none and Disarmed", s.Runtimes, s.Shutdown.State)
	}
	mentions(t, "hostler status", a.prints("status"), "NOT READY", "no container runtime found", "Disarmed", "bus", "none found")

	// By the next renewal everything was tried several times.
	a.await("the lease is renewed", func(s api.Status) bool { return s.Lease.Spec.RenewTime.After(first) })
	for what, part := range map[string]string{"runtime": "no container runtime found", "bus": "system bus"} {
		if lines := a.logLines("level=WARN", part); len(lines) != 1 {
			t.Errorf("the log says %d times that the %s is missing, want once:\n%s", len(lines), what, a.logged())
		}
	}

	installContainerd(t)
	lab.LoginFor(t, lab.LoginOptions{})
	s = a.awaitReady(corev1.ConditionTrue)
	if len(s.Runtimes) != 1 || s.Runtimes[0].Name != "containerd" || !s.Runtimes[0].Ready {
		t.Errorf("Runtimes = %+v, want a containerd that is ready", s.Runtimes)
	}
	s = a.awaitGuard(shutdown.Armed)
	if got := condition(s, status.ShutdownProtected).Status; got != corev1.ConditionTrue {
		a.await("ShutdownProtected is True", func(s api.Status) bool {
			return condition(s, status.ShutdownProtected).Status == corev1.ConditionTrue
		})
	}
	mentions(t, "hostler status", a.prints("status"), "is Ready", "Armed, 30s for pods, the last 10s for critical ones")
	a.stop()
}

// addGroup adds a group to the lab's own /etc/group, until the test ends.
func addGroup(t testing.TB, name string, gid int) {
	t.Helper()
	before, err := os.ReadFile("/etc/group")
	check(t, err)
	check(t, os.WriteFile("/etc/group", fmt.Appendf(slices.Clone(before), "%s:x:%d:\n", name, gid), 0o644))
	t.Cleanup(func() { check(t, os.WriteFile("/etc/group", before, 0o644)) })
}

// runAs makes a command run as an ordinary user.
func runAs(cmd *exec.Cmd, uid, gid uint32) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: gid}}
}
