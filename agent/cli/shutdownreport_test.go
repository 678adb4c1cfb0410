package cli_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestAPictureNeedsAShutdown(t *testing.T) {
	got := hostler(serve(t, &backend{}), "shutdown", "report", "--svg")
	if got.code != 1 || got.stdout != "" || !strings.Contains(got.stderr, "hint: run `hostler ps --last-shutdown`") {
		t.Errorf("shutdown report --svg without a shutdown = %+v, want 1, a hint and no picture", got)
	}
}

// A shutdown after a drain stopped no pods, so the picture shows the drain.
func TestThePictureOfAnEmptiedHostIsOfItsDrain(t *testing.T) {
	b := fullBackend()
	b.status.Shutdown.Last.Pods, b.status.Shutdown.Drained = nil, &b.drained.Record
	b.status.Shutdown.Drained.StartedAt = b.status.Shutdown.Last.StartedAt.Add(-time.Minute)
	got := hostler(serve(t, b), "shutdown", "report", "--svg")
	if got.code != 0 || !strings.Contains(got.stdout, "<title>manual drain ") || !strings.Contains(got.stdout, "shop/api-0") {
		t.Errorf("shutdown report --svg = %+v, want the drain", got)
	}
}

// docs/shutdown.svg is exactly what is drawn from the recorded shutdown.
func TestThePictureInTheDocumentationIsWhatIsDrawn(t *testing.T) {
	const picture, record = "../../docs/shutdown.svg", "../../docs/shutdown.json"
	text, err := os.ReadFile(record)
	if err != nil {
		t.Fatal(err)
	}
	var b backend
	if err := json.Unmarshal(text, &b.status.Shutdown.Last); err != nil {
		t.Fatalf("%s: %v", record, err)
	}
	got := hostler(serve(t, &b), "shutdown", "report", "--svg")
	if got.code != 0 || got.stderr != "" {
		t.Fatalf("shutdown report --svg of %s = %+v, want a picture", record, got)
	}
	if *update {
		if err := os.WriteFile(picture, []byte(got.stdout), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(picture)
	if err != nil {
		t.Fatal(err)
	}
	if got.stdout != string(want) {
		t.Errorf("shutdown report --svg of %s =\n%s\nwant %s:\n%s\n-update writes it from the record, `make transcript` makes both again", record, got.stdout, picture, want)
	}
}

func TestPSLastShutdownWithoutAnAgent(t *testing.T) {
	folder := t.TempDir()
	file := filepath.Join(folder, "hostler.yaml")
	if err := os.WriteFile(file, []byte("state: {directory: "+folder+"/state}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	got := run(nil, map[string]string{"HOSTLER_CONFIG": file, "HOSTLER_SOCKET": folder + "/none"}, "ps", "--last-shutdown")
	code, wanted := 3, "hint: run `hostler doctor` as root"
	if os.Geteuid() == 0 {
		code, wanted = 0, "no agent answers; reading its records in "+folder+"/state"
	}
	if got.code != code || !strings.Contains(got.stderr, wanted) {
		t.Errorf("ps --last-shutdown = %d, %q, want %d, %q", got.code, got.stderr, code, wanted)
	}
}
