package state_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"hostler.io/hostler/internal/state"
)

// fullDisk is set in the environment of the process that plays the full disk.
const fullDisk = "STATE_TEST_FULL_DISK"

// A limit on the size of files that a process may write is what comes nearest to
// a full disk without root. It hits all that the process writes, so that the test
// runs in a process of its own.
func TestAFullDiskLosesNothing(t *testing.T) {
	if os.Getenv(fullDisk) == "" {
		child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestAFullDiskLosesNothing$", "-test.v")
		child.Env = append(os.Environ(), fullDisk+"=1")
		out, err := child.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "--- PASS: TestAFullDiskLosesNothing") {
			t.Errorf("in a process of its own: %v\n%s", err, out)
		}
		return
	}
	path := filepath.Join(t.TempDir(), "state.db")
	var log journal
	db, err := state.Open(path, log.logger())
	if err != nil {
		t.Fatal(err)
	}
	b := db.Bucket("a")
	write(t, b, map[string]string{"before": "1"})
	if err := db.Flush(); err != nil {
		t.Fatal(err)
	}
	full := limitFileSize(t, 64<<10)
	write(t, b, map[string]string{"big": strings.Repeat("x", 256<<10), "after": "2"}, "before")
	for range 3 {
		if err := db.Flush(); err == nil {
			t.Fatal("Flush() on a full disk = nil, want an error")
		}
	}
	if h := db.Health(); h.Persisted || !strings.Contains(h.Message, "file too large") {
		t.Errorf("Health() = %+v, want not persisted, with the cause", h)
	}
	if got := load(t, b); len(got) != 2 || got["after"] != "2" {
		t.Errorf("Load() on a full disk = %d keys, want the two latest", len(got))
	}
	full()
	if err := db.Flush(); err != nil {
		t.Fatalf("Flush() with room again = %v, want no error", err)
	}
	closeDB(t, db)
	if n := log.count("not persisted"); n != 1 {
		t.Errorf("warnings = %d, want 1 in:\n%s", n, log.String())
	}
	db = open(t, path)
	defer closeDB(t, db)
	if got := load(t, db.Bucket("a")); len(got) != 2 || got["after"] != "2" || len(got["big"]) != 256<<10 {
		t.Errorf("Load() after reopening = %d keys, want the two latest", len(got))
	}
}

// limitFileSize makes writes beyond size fail, until the returned function is
// called. Go's runtime takes no harm from SIGXFSZ, which comes with it.
func limitFileSize(t *testing.T, size uint64) (restore func()) {
	t.Helper()
	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &old); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: size, Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	restored := false
	restore = func() {
		if !restored {
			restored = true
			if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &old); err != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(restore)
	return restore
}
