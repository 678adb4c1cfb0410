//go:build integration

package e2e_test

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
)

func TestMembersOfTheGroupReadAndOnlyRootActs(t *testing.T) {
	t.Parallel()
	const gid = 4711
	addGroup(t, "hostler", gid)
	a := startAgent(t, quick)
	as := func(uid, gid uint32, args ...string) answer {
		t.Helper()
		cmd := exec.Command(binary, args...)
		runAs(cmd, uid, gid)
		return execute(t, cmd, []string{"HOSTLER_SOCKET=" + a.socket})
	}
	a.awaitNode()
	for _, args := range [][]string{{"status"}, {"ps"}, {"images"}, {"gc", "plan"}, {"shutdown", "plan"}, {"drain", "--dry-run"}} {
		if r := as(65534, gid, args...); r.code != 0 || r.out == "" {
			t.Errorf("hostler %s as a member of the group = %d, %q, want 0", strings.Join(args, " "), r.code, r.err)
		}
	}
	for _, args := range [][]string{{"gc", "run"}, {"drain"}, {"drain", "--all"}, {"cordon"}, {"uncordon"}} {
		r := as(65534, gid, args...)
		if r.code != 1 {
			t.Errorf("hostler %s as a member of the group = %d, want 1", strings.Join(args, " "), r.code)
		}
		mentions(t, "stderr", r.err, "only root may do this", "hint: run the command with sudo")
	}
	r := as(65534, 65534, "status")
	if r.code != 3 {
		t.Errorf("hostler status as a stranger = %d, want 3", r.code)
	}
	mentions(t, "stderr", r.err, "permission denied", "hint: run it with sudo, or join group hostler")
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
