package runs_test

import (
	"testing"

	"hostler.io/hostler/gc"
	"hostler.io/hostler/gc/runs"
)

func TestTwoRunsInOneReport(t *testing.T) {
	containers := runs.Report{Removed: []runs.Removal{{ID: "c"}}, Filesystems: []string{"/a (a)"}, Errors: []string{"one"}, Kept: map[gc.Reason]int{gc.Newest: 2}, Ended: "nothing left"}
	images := runs.Report{Removed: []runs.Removal{{ID: "i"}}, Filesystems: []string{"/a (a)", "/b (b)"}, FreedBytes: 7, Kept: map[gc.Reason]int{gc.Newest: 1, gc.InUse: 3}, Ended: "low threshold reached"}
	got := containers.Then(images)
	if len(got.Removed) != 2 || len(got.Filesystems) != 2 || got.FreedBytes != 7 || len(got.Errors) != 1 || got.Kept[gc.Newest] != 3 || got.Kept[gc.InUse] != 3 {
		t.Errorf("Then() = %+v, want the sum of both", got)
	}
	if got.Ended != "containers: nothing left; images: low threshold reached" {
		t.Errorf("Then() ended with %q, want the end of each", got.Ended)
	}
	images.Ended = containers.Ended
	if got := containers.Then(images); got.Ended != "nothing left" {
		t.Errorf("Then() ended with %q, want the same end once", got.Ended)
	}
	if containers.Kept[gc.Newest] != 2 {
		t.Errorf("Then() changed the first report: %+v", containers)
	}
}
