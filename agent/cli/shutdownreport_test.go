package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestThereIsNoPictureOfNothing(t *testing.T) {
	got := hostler(serve(t, &backend{}), "shutdown", "report", "--svg")
	if got.code != 1 || got.stdout != "" || !strings.Contains(got.stderr, "hint: `hostler ps --last-shutdown`") {
		t.Errorf("shutdown report --svg without a shutdown = %+v, want 1, a hint and no picture", got)
	}
}

func TestPSLastShutdownWithoutAnAgent(t *testing.T) {
	folder := t.TempDir()
	file := filepath.Join(folder, "hostler.yaml")
	if err := os.WriteFile(file, []byte("state: {directory: "+folder+"/state}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	got := run(nil, map[string]string{"HOSTLER_CONFIG": file, "HOSTLER_SOCKET": folder + "/none"}, "ps", "--last-shutdown")
	code, wanted := 3, "hint: is the agent running?"
	if os.Geteuid() == 0 {
		code, wanted = 0, "no agent answers; this is what it left in "+folder+"/state"
	}
	if got.code != code || !strings.Contains(got.stderr, wanted) {
		t.Errorf("ps --last-shutdown = %d, %q, want %d, %q", got.code, got.stderr, code, wanted)
	}
}
