// Package history remembers collections across restarts of the agent, for
// `hostler gc history`.
//
// It owns which runs are worth remembering, how many, and how they are stored. It
// refuses to hold a run up: a store that fails costs the memory of it, nothing else.
package history

import (
	"encoding/json"
	"fmt"
	"log/slog"
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

// Store keeps values by key: a bucket of the state database.
type Store interface {
	Load() (map[string][]byte, error)
	Write(put map[string][]byte, remove []string) error
}

// History remembers the latest runs. It is safe for concurrent use.
type History struct {
	store Store
	log   *slog.Logger

	mu       sync.Mutex // guards what follows
	keys     []string   // of runs, oldest first
	runs     map[string]Run
	troubles map[string]string // what hindered the latest run, by kind of run
	failing  bool              // the store does
}

// New takes up what the store holds. What cannot be read of it is left out, and
// removed.
func New(store Store, log *slog.Logger) *History {
	h := &History{store: store, log: log, runs: make(map[string]Run), troubles: make(map[string]string)}
	stored, err := store.Load()
	h.note(err)
	var broken []string
	for key, value := range stored {
		var run Run
		if json.Unmarshal(value, &run) != nil || run.StartedAt.IsZero() {
			broken = append(broken, key)
			continue
		}
		h.runs[key] = run
	}
	h.keys = slices.Sorted(maps.Keys(h.runs))
	h.note(store.Write(nil, append(broken, h.trim()...)))
	return h
}

// Add remembers a run that a person asked for, that removed something, or that was
// hindered by what did not hinder the one of its kind before it already.
func (h *History) Add(kind string, r runs.Report) {
	h.mu.Lock()
	defer h.mu.Unlock()
	troubles := strings.Join(r.Troubles(), "\n")
	known := troubles == "" || troubles == h.troubles[kind]
	h.troubles[kind] = troubles
	if len(r.Removed) == 0 && known && !r.Asked() {
		return
	}
	run := Run{
		Kind: kind, Summary: r.Summary(), Trigger: r.Trigger, EstimatedBytes: r.EstimatedBytes,
		RequestedInodes: r.RequestedInodes, EstimatedInodes: r.EstimatedInodes, FreedInodes: r.FreedInodes, Filesystems: r.Filesystems,
		Candidates: r.Candidates, RemovedBy: r.RemovedBy(), Kept: maps.Clone(r.Kept), Warnings: shorten(r.Warnings), Ended: r.Ended,
	}
	run.Errors, run.Summary.Warnings = shorten(run.Errors), nil // told above
	value, err := json.Marshal(run)
	if err != nil { // made of numbers and texts
		h.note(err)
		return
	}
	key := fmt.Sprintf("%020d %s", r.StartedAt.UnixNano(), kind)
	h.runs[key] = run
	h.keys = append(h.keys, key)
	slices.Sort(h.keys) // the clock may have been set back
	h.keys = slices.Compact(h.keys)
	h.note(h.store.Write(map[string][]byte{key: value}, h.trim()))
}

// Runs returns what is remembered, the latest first.
func (h *History) Runs() []Run {
	h.mu.Lock()
	defer h.mu.Unlock()
	runs := make([]Run, 0, len(h.keys))
	for _, key := range slices.Backward(h.keys) {
		runs = append(runs, h.runs[key])
	}
	return runs
}

// trim forgets the oldest beyond MaxRuns and returns their keys.
func (h *History) trim() []string {
	beyond := max(0, len(h.keys)-MaxRuns)
	old := slices.Clone(h.keys[:beyond])
	h.keys = slices.Delete(h.keys, 0, beyond)
	for _, key := range old {
		delete(h.runs, key)
	}
	return old
}

// note logs when the store begins to fail and when it works again.
func (h *History) note(err error) {
	if err != nil && !h.failing {
		h.log.Warn("collections are remembered in memory only", "error", err)
	} else if err == nil && h.failing {
		h.log.Info("collections are stored again")
	}
	h.failing = err != nil
}

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
