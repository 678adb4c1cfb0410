package runc

import (
	"log/slog"
	"sync"

	"hostler.io/hostler/runtime/local"
)

// DefaultCandidates returns the default state roots of runc and crun. State roots of users, in
// their runtime folders, are not included.
func DefaultCandidates() []local.Candidate {
	return []local.Candidate{
		{Type: Type, Name: "runc", Path: "/run/runc"},
		{Type: Type, Name: "crun", Path: "/run/crun"},
	}
}

// NameOf returns the name of the runtime with that state root.
func NameOf(path string) string { return local.NameOf(DefaultCandidates(), path) }

// Finder searches for state roots with containers. It ignores containers of Podman and CRI-O, so
// that a host that uses only these is not shown a runc runtime. Its zero value is ready to use. It
// is safe for concurrent use.
type Finder struct {
	mu     sync.Mutex
	stores map[string]*store // by path; cache what was read; guarded by mu
}

// HasContainers reports whether a root has a container that no other program manages.
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
	// A root that cannot be read counts as empty.
	_ = s.each(func(c container) bool {
		found = c.state.identified()
		return !found
	})
	return found
}
