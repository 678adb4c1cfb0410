package agent

import (
	"log/slog"
	"os"
	"strings"
	"testing"

	"hostler.io/hostler/agent/config"
)

func TestAStateFolderThatOthersCanWriteIsRefused(t *testing.T) {
	cfg := config.Default()
	cfg.State.Directory = t.TempDir()
	if err := os.Chmod(cfg.State.Directory, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := newKept(cfg, host{}, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "state.directory") {
		t.Errorf("newKept() in a folder of mode 0777 = %v, want an error that names state.directory", err)
	}
}
