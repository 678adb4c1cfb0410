package history_test

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"testing"
	"time"

	"hostler.io/hostler/gc"
	"hostler.io/hostler/gc/history"
	"hostler.io/hostler/gc/runs"
)

// store keeps values in memory, unless it fails.
type store struct {
	values map[string][]byte
	writes int
	err    error
}

func (s *store) Load() (map[string][]byte, error) { return maps.Clone(s.values), s.err }

func (s *store) Write(put map[string][]byte, remove []string) error {
	if s.err != nil || len(put)+len(remove) == 0 {
		return s.err
	}
	s.writes++
	maps.Copy(s.values, put)
	for _, key := range remove {
		delete(s.values, key)
	}
	return nil
}

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// report is of a run that removed so many images, so long after noon.
func report(after time.Duration, trigger string, removed int) runs.Report {
	r := runs.Report{StartedAt: noon.Add(after), Trigger: trigger, RequestedBytes: 7, EstimatedBytes: 6, FreedBytes: 5, Ended: "low threshold reached"}
	for i := range removed {
		r.Removed = append(r.Removed, runs.Removal{Kind: runs.KindImage, ID: fmt.Sprint(i), Reason: gc.LRU})
	}
	return r
}

func TestHistorySurvivesARestart(t *testing.T) {
	s := &store{values: map[string][]byte{"torn": []byte(`{"kind":`)}}
	h := history.New(s, quiet())
	if _, left := s.values["torn"]; left {
		t.Error("New() leaves what cannot be read in the store, want it removed")
	}
	h.Add(history.Images, report(0, "interval", 2))
	h.Add(history.Containers, report(time.Minute, "interval", 1))
	h.Add(history.Images, report(2*time.Minute, runs.TriggerRequest, 0))
	kept := history.New(s, quiet()).Runs()
	if len(kept) != 3 || kept[0].Trigger != runs.TriggerRequest || kept[1].Kind != history.Containers || !kept[2].StartedAt.Equal(noon) {
		t.Fatalf("Runs() after a restart = %+v, want three, the latest first", kept)
	}
	if got := kept[2]; got.Removed != 2 || got.RemovedBy[gc.LRU] != 2 || got.RequestedBytes != 7 || got.EstimatedBytes != 6 || got.FreedBytes != 5 || got.Ended != "low threshold reached" {
		t.Errorf("Runs() = %+v, want what the report said", got)
	}
}

func TestHistoryLeavesOutRunsThatDidNothing(t *testing.T) {
	s := &store{values: map[string][]byte{}}
	h := history.New(s, quiet())
	for i := range 10 {
		h.Add(history.Images, report(time.Duration(i)*time.Minute, "interval", 0))
	}
	if got := h.Runs(); len(got) != 0 || s.writes != 0 {
		t.Errorf("Runs() after runs that did nothing = %v with %d writes, want none", got, s.writes)
	}
}

func TestHistoryIsBounded(t *testing.T) {
	s := &store{values: map[string][]byte{}}
	h := history.New(s, quiet())
	for i := range history.MaxRuns + 50 {
		r := report(time.Duration(i)*time.Minute, "interval", 1)
		for range 500 {
			r.Errors = append(r.Errors, strings.Repeat("ü", 5000))
		}
		h.Add(history.Images, r)
	}
	runs := h.Runs()
	if len(runs) != history.MaxRuns || len(s.values) != history.MaxRuns || !runs[0].StartedAt.Equal(noon.Add((history.MaxRuns+49)*time.Minute)) {
		t.Errorf("Runs() = %d runs, %d stored, want the latest %d", len(runs), len(s.values), history.MaxRuns)
	}
	for key, value := range s.values {
		if len(value) > 64<<10 {
			t.Fatalf("stored %d bytes under %q, want errors cut short", len(value), key)
		}
	}
}

func TestHistoryOutlivesItsStore(t *testing.T) {
	var log strings.Builder
	s := &store{values: map[string][]byte{}, err: errors.New("disk full")}
	h := history.New(s, slog.New(slog.NewTextHandler(&log, nil)))
	for i := range 3 {
		h.Add(history.Images, report(time.Duration(i)*time.Minute, "interval", 1))
	}
	s.err = nil
	h.Add(history.Images, report(time.Hour, "interval", 1))
	if got := len(h.Runs()); got != 4 || strings.Count(log.String(), "level=WARN") != 1 || strings.Count(log.String(), "stored again") != 1 {
		t.Errorf("Runs() = %d runs, log %q, want all four, and that the store failed said once", got, log.String())
	}
}
