package statefile_test

import (
	"maps"
	"os"
	"strings"
	"syscall"
	"testing"

	"hostler.io/hostler/internal/statefile"
)

// A limit on the size of files is the closest to a full disk without root. It affects the whole
// process, so the test runs in a separate process.
func TestAFullDiskLosesNothing(t *testing.T) {
	if os.Getenv(child) == "" {
		if out, err := inChild(t, "full disk"); err != nil || !strings.Contains(out, "--- PASS: TestAFullDiskLosesNothing") {
			t.Errorf("in a process of its own: %v\n%s", err, out)
		}
		return
	}
	path := t.TempDir()
	var log journal
	folder, err := statefile.Open(path, log.logger())
	if err != nil {
		t.Fatal(err)
	}
	before := map[string]string{"before": "1"}
	save(folder.File("a"), before)
	if err := folder.Flush(); err != nil {
		t.Fatal(err)
	}
	kept, err := os.ReadFile(path + "/a.state")
	if err != nil {
		t.Fatal(err)
	}
	restore := limitFileSize(t, 64<<10)
	after := map[string]string{"big": strings.Repeat("x", 256<<10), "after": "2"}
	save(folder.File("a"), after)
	for range 3 {
		if err := folder.Flush(); err == nil {
			t.Fatal("Flush() on a full disk = nil, want an error")
		}
	}
	if h := folder.Health(); h.Persisted || h.Message != "not persisted: write "+path+"/a.state: file too large" {
		t.Errorf("Health() = %+v, want not persisted, with the cause", h)
	}
	if text, err := os.ReadFile(path + "/a.state"); err != nil || string(text) != string(kept) {
		t.Errorf("the file on a full disk holds %q, %v, want it as before", text, err)
	}
	want(t, "on a full disk", folder.File("a"), after)
	restore()
	if err := folder.Flush(); err != nil {
		t.Fatalf("Flush() with room again = %v, want no error", err)
	}
	closed(t, folder)
	if n := log.count("cannot persist state"); n != 1 {
		t.Errorf("warnings = %d, want 1 in:\n%s", n, log.String())
	}
	folder = open(t, path)
	defer closed(t, folder)
	var got map[string]string
	folder.File("a").Load(&got)
	if !maps.Equal(got, after) {
		t.Errorf("Load() after reopening = %d keys, want the two latest", len(got))
	}
}

// limitFileSize makes writes beyond size fail until restore is called. Go's runtime survives the
// SIGXFSZ that such writes cause.
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
