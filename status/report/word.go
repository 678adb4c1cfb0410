package report

import (
	"encoding/json"
	"log/slog"
	"sync"
)

// word is what a person said last about the node, kept where it outlives the agent, the
// boot, and the state file. It is safe for concurrent use.
type word[T comparable] struct {
	notes Store
	key   string
	log   *slog.Logger

	mu     sync.Mutex
	latest *T // nil if nobody has said anything
}

// recall reads what was said before this start; without it nothing counts as said.
func recall[T comparable](notes Store, key string, log *slog.Logger) (*word[T], error) {
	w := &word[T]{notes: notes, key: key, log: log}
	values, err := notes.Load()
	if value, found := values[key]; err == nil && found {
		var said T
		if err = json.Unmarshal(value, &said); err == nil {
			w.latest = &said
		}
	}
	return w, err
}

// get is what was said last; nil if nothing was.
func (w *word[T]) get() *T {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.latest == nil {
		return nil
	}
	said := *w.latest
	return &said
}

// set makes said the latest word, nil for none. It is on disk within seconds.
func (w *word[T]) set(said *T) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.put(said)
}

// follow puts said, nil for none, in the place of what was said before, unless a
// person has spoken anew since.
func (w *word[T]) follow(before, said *T) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.latest != nil && *w.latest == *before {
		w.put(said)
	}
}

// put is set for a caller that holds mu.
func (w *word[T]) put(said *T) {
	w.latest = said
	put, remove := map[string][]byte{}, []string{w.key}
	if said != nil {
		value, err := json.Marshal(said)
		if err != nil {
			panic(err) // a struct of plain fields
		}
		put, remove = map[string][]byte{w.key: value}, nil
	}
	if err := w.notes.Write(put, remove); err != nil {
		w.log.Warn("what a person said of the node may not survive the agent", "about", w.key, "error", err)
	}
}
