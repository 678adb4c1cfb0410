package runc

import (
	"log/slog"
	"sync"

	"hostler.io/hostler/runtime/local"
)

// DefaultCandidates are the state roots that runc and crun have where nobody names
// another. Those of users, in their runtime folders, are theirs.
func DefaultCandidates() []local.Candidate {
	return []local.Candidate{
		{Type: Type, Name: "runc", Path: "/run/runc"},
		{Type: Type, Name: "crun", Path: "/run/crun"},
	}
}

// NameOf is the name of the runtime whose state root that is.
func NameOf(path string) string { return local.NameOf(DefaultCandidates(), path) }

// Finder searches for state roots with containers. Podman's and CRI-O's alone are none to it,
// so that nobody is shown a runtime that he does not use. Its zero value is ready, and it
// is safe for concurrent use.
type Finder struct {
	mu     sync.Mutex
	stores map[string]*store // by path, which keep what was read; guarded by mu
}

// HasContainers reports whether a root has a container without another manager.
func (f *Finder) HasContainers(path string) bool {
	f.mu.Lock()
	s := f.stores[path]
	if s == nil {
		s = newStore(path, slog.New(slog.DiscardHandler))
		if f.stores == nil {
			f.stores = map[string]*store{}
		}
		f.stores[path] = s
	}
	f.mu.Unlock()
	found := false
	// Nothing is known about a root that cannot be read.
	_ = s.each(func(c container) bool {
		found = c.err == nil
		return !found
	})
	return found
}
