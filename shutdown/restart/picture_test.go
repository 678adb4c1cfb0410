package restart

import (
	"os"
	"path/filepath"
	"testing"
)

// If a file server hangs, the host has not changed. Otherwise a container would lose an attempt.
func TestAnUnreadablePictureIsNoChange(t *testing.T) {
	proc := t.TempDir()
	if err := os.MkdirAll(filepath.Join(proc, "1/root/srv"), 0o755); err != nil {
		t.Fatal(err)
	}
	h := &host{proc: proc}
	before := h.picture(t.Context(), []string{"/srv"})
	h.hangs.Store(true) // an earlier check has not returned
	if differs(before, h.picture(t.Context(), []string{"/srv"})) {
		t.Error("a check that hangs counts as a change")
	}
	h.hangs.Store(false)
	if err := os.Remove(filepath.Join(proc, "1/root/srv")); err != nil {
		t.Fatal(err)
	}
	if !differs(before, h.picture(t.Context(), []string{"/srv"})) {
		t.Error("a folder that has gone is no change")
	}
}
