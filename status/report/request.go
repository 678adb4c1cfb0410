package report

import (
	"encoding/json"
	"log/slog"
	"sync"
)

// request is an operator's last request. It survives restarts of the agent and of the host, and the
// loss of the state files. It is safe for concurrent use.
type request[T comparable] struct {
	notes Store
	key   string
	log   *slog.Logger

	mu     sync.Mutex
	latest *T // nil if there is none
}

// loadRequest reads the stored request. After an error there is none.
func loadRequest[T comparable](notes Store, key string, log *slog.Logger) (*request[T], error) {
	r := &request[T]{notes: notes, key: key, log: log}
	values, err := notes.Load()
	if value, found := values[key]; err == nil && found {
		var latest T
		if err = json.Unmarshal(value, &latest); err == nil {
			r.latest = &latest
		}
	}
	return r, err
}

// get returns the last request, or nil.
func (r *request[T]) get() *T {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.latest == nil {
		return nil
	}
	latest := *r.latest
	return &latest
}

// set replaces the last request; nil means none. It is on disk within seconds.
func (r *request[T]) set(next *T) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.put(next)
}

// replace replaces the request before by next, nil for none, unless there is a newer request.
func (r *request[T]) replace(before, next *T) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.latest != nil && *r.latest == *before {
		r.put(next)
	}
}

// put is set for a caller that holds mu.
func (r *request[T]) put(next *T) {
	r.latest = next
	put, remove := map[string][]byte{}, []string{r.key}
	if next != nil {
		value, err := json.Marshal(next)
		if err != nil {
			panic(err) // cannot happen for a struct of plain fields
		}
		put, remove = map[string][]byte{r.key: value}, nil
	}
	if err := r.notes.Write(put, remove); err != nil {
		r.log.Warn("cannot persist the operator's request", "request", r.key, "error", err)
	}
}
