package fleetsim

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// TestKnownFaultsApply checks that the program still has what the known faults change.
func TestKnownFaultsApply(t *testing.T) {
	patches, err := filepath.Glob("known/*.patch")
	if err != nil || len(patches) == 0 {
		t.Fatalf("no known fault: %v", err)
	}
	for _, patch := range patches {
		text, err := os.ReadFile(patch)
		if err != nil {
			t.Fatal(err)
		}
		if !regexp.MustCompile(`(?m)^Violation: .+$`).Match(text) {
			t.Errorf("%s does not name the violation that it causes", patch)
		}
		check := exec.Command("git", "-c", "safe.directory=*", "apply", "--check", filepath.Join("test/fleetsim", patch))
		check.Dir = "../.."
		if out, err := check.CombinedOutput(); err != nil {
			t.Errorf("%s does not apply: %v\n%s", patch, err, out)
		}
	}
}
