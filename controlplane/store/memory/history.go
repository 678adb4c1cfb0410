package memory

import (
	"slices"
	"strings"

	"hostler.io/hostler/controlplane/store"
)

// history has the changes that watches have not reported yet. The mutex of the fleet guards it. Each
// watch reads it at its own pace, from its own position.
type history struct {
	changes []change // by revision
	watches []*watch // in the order of their start
	epoch   int      // number of restores
	lists   int      // number of times that all watches had to list again
	checked int      // number of changes at which trim checks which ones are needed
}

// change is one write.
type change struct {
	revision int64
	path     string
	value    []byte // of a deleted object, the last one
	deleted  bool
}

// watch is a Follow in progress.
type watch struct {
	kind    store.Kind
	scope   store.Scope
	path    string        // of the only object; empty for all of the kind
	at      int64         // the revision up to which changes were reported
	lists   int           // history.lists at its list
	changed chan struct{} // receives when there is something to report; has a buffer of one
}

// least is the number of changes below which trim does nothing.
const least = 1024

// log adds a change at the present revision. The caller holds mu.
func (s *fleet) log(c change) {
	h := &s.history
	c.revision = s.revision
	if len(h.watches) == 0 {
		h.changes = nil
		return
	}
	h.changes = append(h.changes, c)
	for _, w := range h.watches {
		if s.matches(w, c) {
			w.wake()
		}
	}
	h.trim()
}

// matches reports whether a watch reports a change. The caller holds mu.
func (s *fleet) matches(w *watch, c change) bool {
	if w.path != "" {
		return w.path == c.path
	}
	name, below := strings.CutPrefix(c.path, w.kind.Folder())
	return below && w.kind.Is(name) && (c.deleted || w.scope != store.Deletions || !s.o.EndsLeases)
}

// trim forgets changes that all watches have passed.
func (h *history) trim() {
	if len(h.changes) < max(h.checked, least) {
		return
	}
	passed := h.changes[len(h.changes)-1].revision
	for _, w := range h.watches {
		if w.path == "" { // other watches report only the last state
			passed = min(passed, w.at)
		}
	}
	i, _ := slices.BinarySearchFunc(h.changes, passed+1, func(c change, revision int64) int { return int(c.revision - revision) })
	h.changes = slices.Clone(h.changes[i:])
	h.checked = 2 * len(h.changes)
}

// after returns the changes after a revision.
func (h *history) after(revision int64) []change {
	i, _ := slices.BinarySearchFunc(h.changes, revision+1, func(c change, r int64) int { return int(c.revision - r) })
	return h.changes[i:]
}

// restart forgets all changes: the store was restored.
func (h *history) restart() {
	h.changes = nil
	h.epoch++
	h.lists++
	h.wake()
}

// wake makes all watches check the history again.
func (h *history) wake() {
	for _, w := range h.watches {
		w.wake()
	}
}

func (w *watch) wake() {
	select {
	case w.changed <- struct{}{}:
	default: // an earlier signal was not received yet
	}
}
