//go:build integration

package lab_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hostler.io/hostler/test/lab"
	"hostler.io/hostler/test/machine/debian"
)

// Containers of another Debian's runc are visible in the lab, and neither leaves anything behind.
func TestProgramsOfAnotherDebianLeaveNothing(t *testing.T) {
	tree, err := debian.PrepareRuntimes(t.Context(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	l, remove, err := lab.In(t).WithTree(tree)
	if err != nil {
		t.Fatal(err)
	}
	r, err := l.NewRunc("")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Run(within(t, 10*time.Minute), lab.RuncContainer{ID: "web", Command: lab.ServeFor(0), Ready: "ready"}); err != nil {
		t.Fatal(err)
	}
	if state, err := os.ReadFile(filepath.Join(r.Root, "web/state.json")); err != nil || !strings.Contains(string(state), filepath.Dir(r.Root)) {
		t.Errorf("state of the container = %.200s, %v, want it here, with the paths of here", state, err)
	}
	if pids, err := r.Processes("web"); err != nil || len(pids) == 0 {
		t.Errorf("Processes() = %v, %v, want that of the container", pids, err)
	}
	if err := r.Close(); err != nil {
		t.Fatalf("Close() = %v", err)
	}
	if err := remove(); err != nil {
		t.Fatalf("remove() = %v", err)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || strings.Contains(string(mounts), lab.Dir+"/tree-") {
		t.Errorf("mounts are left of the root: %v", err)
	}
	if left, err := filepath.Glob(lab.Dir + "/tree-*"); err != nil || len(left) != 0 {
		t.Errorf("files are left of the root: %v, %v", left, err)
	}
	if _, err := os.Stat("/var/lib/dpkg"); err != nil {
		t.Errorf("the lab's own files: %v", err)
	}
}
