// Package history persists past collections across restarts of the agent, for `hostler gc history`.
//
// It owns which runs are kept, and how many. Writes never delay a run, because the store writes in
// the background.
package history

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"hostler.io/hostler/gc"
	"hostler.io/hostler/gc/runs"
)

// Limits on what is kept: the number of runs; per run, the errors and warnings; and the bytes of
// each text.
const (
	MaxRuns  = 200
	maxTexts = 10
	maxText  = 2000
)

// Kinds of runs.
const (
	Images     = "images"
	Containers = "containers"
)

// Run is one collection, without the list of removed objects.
type Run struct {
	Kind string `json:"kind"`
	runs.Summary
	Trigger         string            `json:"trigger"`
	EstimatedBytes  uint64            `json:"estimatedBytes"`
	RequestedInodes uint64            `json:"requestedInodes"`
	EstimatedInodes uint64            `json:"estimatedInodes"`
	FreedInodes     uint64            `json:"freedInodes"`
	Filesystems     []string          `json:"filesystems,omitempty"`
	Candidates      int               `json:"candidates"`
	RemovedBy       map[gc.Reason]int `json:"removedBy"`
	Kept            map[gc.Reason]int `json:"kept"`
	Warnings        []string          `json:"warnings,omitempty"`
	Ended           string            `json:"ended"`
}

// Store persists the runs: a *statefile.File.
type Store interface {
	// Load reads the saved value, if there is one.
	Load(into any)
	// Save calls snapshot later and writes its result.
	Save(snapshot func() any)
}

// History has the latest runs. It is safe for concurrent use.
type History struct {
	store Store

	mu       sync.Mutex        // guards the fields below
	runs     []Run             // ordered by when they ended, not by time, because the clock may have been wrong; stored runs are never modified
	troubles map[string]string // troubles of the latest run, by kind of run
}

// New loads the runs from the store.
func New(store Store) *History {
	h := &History{store: store, troubles: make(map[string]string)}
	store.Load(&h.runs)
	h.runs = slices.DeleteFunc(h.runs, func(r Run) bool { return r.StartedAt.IsZero() })
	h.trim()
	return h
}

// Add stores a run if it was requested, removed something, or had other troubles than the previous
// run of its kind.
func (h *History) Add(kind string, r runs.Report) {
	h.mu.Lock()
	defer h.mu.Unlock()
	troubles := strings.Join(r.Troubles(), "\n")
	known := troubles == "" || troubles == h.troubles[kind]
	h.troubles[kind] = troubles
	if len(r.Removed) == 0 && known && !r.Requested() {
		return
	}
	run := Run{
		Kind: kind, Summary: r.Summary(), Trigger: r.Trigger, EstimatedBytes: r.EstimatedBytes,
		RequestedInodes: r.RequestedInodes, EstimatedInodes: r.EstimatedInodes, FreedInodes: r.FreedInodes, Filesystems: r.Filesystems,
		Candidates: r.Candidates, RemovedBy: r.RemovedBy(), Kept: maps.Clone(r.Kept), Warnings: shorten(r.Warnings), Ended: r.Ended,
	}
	run.Errors, run.Summary.Warnings = shorten(run.Errors), nil // Run.Warnings has the warnings
	h.runs = append(h.runs, run)
	h.trim()
	h.store.Save(h.snapshot)
}

// Runs returns the stored runs, newest first.
func (h *History) Runs() []Run {
	h.mu.Lock()
	defer h.mu.Unlock()
	runs := slices.Clone(h.runs)
	slices.Reverse(runs)
	return runs
}

func (h *History) snapshot() any {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.runs)
}

// trim removes the oldest runs beyond MaxRuns.
func (h *History) trim() { h.runs = slices.Delete(h.runs, 0, max(0, len(h.runs)-MaxRuns)) }

// shorten keeps the first texts, and cuts long ones.
func shorten(texts []string) []string {
	short := slices.Clone(texts[:min(len(texts), maxTexts)])
	for i, text := range short {
		if len(text) > maxText {
			short[i] = strings.ToValidUTF8(text[:maxText], "") + " ..."
		}
	}
	if more := len(texts) - len(short); more > 0 {
		short = append(short, fmt.Sprintf("and %d more", more))
	}
	return short
}
