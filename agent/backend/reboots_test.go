package backend

import (
	"slices"
	"testing"

	"hostler.io/hostler/agent/doctor"
	"hostler.io/hostler/agent/reboot"
)

func TestChecksWithoutAResultAreBroken(t *testing.T) {
	got := brokenChecks(reboot.Report{Undecided: []reboot.Finding{
		{Source: "new", Message: "it has not run since the agent started", Pending: true},
		{Source: "open", Message: "others may write it", Hint: "/etc/hostler/reboot.d/open: chmod go-w"},
	}})
	if want := []doctor.Fix{{Message: "open: others may write it", Command: "/etc/hostler/reboot.d/open: chmod go-w"}}; !slices.Equal(got, want) {
		t.Errorf("brokenChecks() = %+v, want %+v: a check that has yet to run is not broken", got, want)
	}
}
