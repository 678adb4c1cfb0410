// Package history keeps past collections across restarts of the agent, for
// `hostler gc history`.
//
// It owns which runs are kept, and how many. Its writes never delay a run: the store writes in
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

// What is remembered at most: runs, and of one run errors and warnings, with so
// many bytes of each.
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

// Run is one collection, without the list of what it removed.
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

// Store keeps the runs: a *statefile.File.
type Store interface {
	// Load reads what was saved last, if there is any.
	Load(into any)
	// Save has written what snapshot returns later.
	Save(snapshot func() any)
}

// History remembers the latest runs. It is safe for concurrent use.
type History struct {
	store Store

	mu       sync.Mutex        // guards what follows
	runs     []Run             // in the order of their ends, for the clock may have been wrong; none is changed once it is there
	troubles map[string]string // what hindered the latest run, by kind of run
}

// New takes up what the store holds.
func New(store Store) *History {
	h := &History{store: store, troubles: make(map[string]string)}
	store.Load(&h.runs)
	h.runs = slices.DeleteFunc(h.runs, func(r Run) bool { return r.StartedAt.IsZero() })
	h.trim()
	return h
}

// Add remembers a run that a person requested, that removed something, or that was
// hindered by what did not hinder the one of its kind before it already.
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
	run.Errors, run.Summary.Warnings = shorten(run.Errors), nil // reported above
	h.runs = append(h.runs, run)
	h.trim()
	h.store.Save(h.snapshot)
}

// Runs returns what is remembered, the latest first.
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

// trim forgets the oldest beyond MaxRuns.
func (h *History) trim() { h.runs = slices.Delete(h.runs, 0, max(0, len(h.runs)-MaxRuns)) }

// shorten keeps the first texts, cut where they are long.
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
