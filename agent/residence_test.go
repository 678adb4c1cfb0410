package agent

import (
	"os"
	"strings"
	"testing"

	"github.com/prometheus/procfs"
)

// residentOfFiles is how much of files this process has mapped, in bytes.
func residentOfFiles(t *testing.T) uint64 {
	t.Helper()
	self, err := procfs.Self()
	if err != nil {
		t.Fatal(err)
	}
	status, err := self.NewStatus()
	if err != nil {
		t.Fatal(err)
	}
	return status.RssFile
}

func TestPagesOfTheProgramAreGivenBackAndComeAgain(t *testing.T) {
	before := residentOfFiles(t)
	if err := unmapProgram(); err != nil {
		t.Fatal(err)
	}
	if after := residentOfFiles(t); after >= before {
		t.Errorf("%d bytes of files are mapped, and were %d before: nothing was given back", after, before)
	}
	// What goes on from here proves that code and constants are still there.
	if name, err := os.Executable(); err != nil || !strings.Contains(name, "agent") {
		t.Errorf("Executable() = %q, %v, want this test", name, err)
	}
}
