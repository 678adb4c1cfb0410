package history_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"hostler.io/hostler/gc"
	"hostler.io/hostler/gc/history"
	"hostler.io/hostler/gc/runs"
	"hostler.io/hostler/internal/statefile"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// report returns the report of a run that removed n images, that long after noon.
func report(after time.Duration, trigger string, removed int) runs.Report {
	r := runs.Report{StartedAt: noon.Add(after), Trigger: trigger, RequestedBytes: 7, EstimatedBytes: 6, FreedBytes: 5, Ended: "low threshold reached"}
	for i := range removed {
		r.Removed = append(r.Removed, runs.Removal{Kind: runs.KindImage, ID: fmt.Sprint(i), Reason: gc.LRU})
	}
	return r
}

func TestHistorySurvivesARestart(t *testing.T) {
	s := statefile.NewMemory().File("gc-history")
	s.Save(func() any { return []history.Run{{Kind: history.Images}} }) // without a start time
	h := history.New(s)
	h.Add(history.Images, report(0, "interval", 2))
	h.Add(history.Containers, report(time.Minute, "interval", 1))
	h.Add(history.Images, report(2*time.Minute, runs.TriggerRequest, 0))
	kept := history.New(s).Runs()
	if len(kept) != 3 || kept[0].Trigger != runs.TriggerRequest || kept[1].Kind != history.Containers || !kept[2].StartedAt.Equal(noon) {
		t.Fatalf("Runs() after a restart = %+v, want three, the latest first", kept)
	}
	if got := kept[2]; got.Removed != 2 || got.RemovedBy[gc.LRU] != 2 || got.RequestedBytes != 7 || got.EstimatedBytes != 6 || got.FreedBytes != 5 || got.Ended != "low threshold reached" {
		t.Errorf("Runs() = %+v, want what the report said", got)
	}
}

// unsaved counts the calls of Save.
type unsaved struct{ saves int }

func (s *unsaved) Load(any)        {}
func (s *unsaved) Save(func() any) { s.saves++ }

func TestHistoryLeavesOutRunsThatDidNothing(t *testing.T) {
	s := &unsaved{}
	h := history.New(s)
	for i := range 10 {
		h.Add(history.Images, report(time.Duration(i)*time.Minute, "interval", 0))
	}
	if got := h.Runs(); len(got) != 0 || s.saves != 0 {
		t.Errorf("Runs() after runs that did nothing = %v with %d writes, want none", got, s.saves)
	}
}

func TestHistoryIsBounded(t *testing.T) {
	s := statefile.NewMemory().File("gc-history")
	h := history.New(s)
	for i := range history.MaxRuns + 50 {
		r := report(time.Duration(i)*time.Minute, "interval", 1)
		for range 500 {
			r.Errors = append(r.Errors, strings.Repeat("ü", 5000))
		}
		h.Add(history.Images, r)
	}
	runs := h.Runs()
	var stored []json.RawMessage
	s.Load(&stored)
	if len(runs) != history.MaxRuns || len(stored) != history.MaxRuns || !runs[0].StartedAt.Equal(noon.Add((history.MaxRuns+49)*time.Minute)) {
		t.Errorf("Runs() = %d runs, %d stored, want the latest %d", len(runs), len(stored), history.MaxRuns)
	}
	for i, run := range stored {
		if len(run) > 64<<10 {
			t.Fatalf("stored run %d has %d bytes, want errors cut short", i, len(run))
		}
	}
}

// The clock of a host may be wrong, even by years, until it is set.
func TestNewRunsAreShownAfterAClockThatWasAhead(t *testing.T) {
	s := statefile.NewMemory().File("gc-history")
	h := history.New(s)
	for i := range history.MaxRuns {
		h.Add(history.Images, report(10*365*24*time.Hour+time.Duration(i)*time.Minute, "interval", 1))
	}
	h.Add(history.Containers, report(0, "interval", 1))
	h.Add(history.Images, report(time.Minute, "interval", 1))
	for name, runs := range map[string][]history.Run{"at once": h.Runs(), "after a restart": history.New(s).Runs()} {
		if len(runs) != history.MaxRuns || !runs[0].StartedAt.Equal(noon.Add(time.Minute)) || runs[1].Kind != history.Containers {
			t.Errorf("Runs() %s begins with %v and %v of %d runs, want the two that ended last", name, runs[0].StartedAt, runs[1].StartedAt, len(runs))
		}
	}
}
