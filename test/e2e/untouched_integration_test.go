//go:build integration

package e2e_test

import (
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/test/lab"
)

// stamps identify the state of the files below folders.
func stamps(t testing.TB, folders ...string) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, folder := range folders {
		check(t, filepath.WalkDir(folder, func(path string, e fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := e.Info()
			if err != nil {
				return err
			}
			s := info.Sys().(*syscall.Stat_t)
			found[path] = fmt.Sprint(s.Ino, s.Mode, s.Uid, s.Gid, s.Size, s.Mtim, s.Ctim)
			return nil
		}))
	}
	return found
}

// TestDoctorTouchesNoFile runs doctor with an agent and without one.
func TestDoctorTouchesNoFile(t *testing.T) {
	logind(t)
	pod(t, "web", nil, 0, lab.ServeFor(0))
	a := startAgent(t, quick)
	a.awaitGuard(shutdown.Armed)
	check(t, syscall.Kill(a.process.PID, syscall.SIGSTOP)) // the agent writes files itself; doctor reads the rest from others
	eventually(t, "the agent hangs", func() bool { return lab.Stopped(a.process.PID) })
	untouchedBy := func(when string) {
		t.Helper()
		before := stamps(t, "/etc", "/run/systemd", filepath.Join(a.folder, "state"))
		command(t, nil, "doctor")
		after := stamps(t, "/etc", "/run/systemd", filepath.Join(a.folder, "state"))
		if !maps.Equal(before, after) {
			var changed []string
			for path := range after {
				if before[path] != after[path] {
					changed = append(changed, path)
				}
			}
			slices.Sort(changed)
			t.Errorf("hostler doctor %s has changed %s, of %d files that there were", when, strings.Join(changed, ", "), len(before))
		}
	}
	untouchedBy("with an agent that hangs")
	a.kill()
	untouchedBy("without an agent")
}
