// Package fruitless records, across runs and restarts of the agent, on which filesystems removals
// of images freed nothing.
//
// It owns the records. [gc.Plan] decides whether a record still applies.
package fruitless

import (
	"maps"
	"sync"

	"hostler.io/hostler/gc"
)

// Store persists the records: a *statefile.File.
type Store interface {
	// Load reads the saved value, if there is one.
	Load(into any)
	// Save calls snapshot later and writes its result.
	Save(snapshot func() any)
}

// Memory has the latest record of each filesystem. It is safe for concurrent use. A nil Memory is
// empty and stores nothing.
type Memory struct {
	store Store

	mu      sync.Mutex              // guards the fields below
	records map[string]gc.Fruitless // by filesystem; stored records are never modified
}

// New loads the records from the store.
func New(store Store) *Memory {
	m := &Memory{store: store}
	store.Load(&m.records)
	if m.records == nil {
		m.records = make(map[string]gc.Fruitless)
	}
	return m
}

// Records returns a copy of the records, by filesystem.
func (m *Memory) Records() map[string]gc.Fruitless {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.records)
}

// Remember replaces the record of a filesystem.
func (m *Memory) Remember(filesystem string, record gc.Fruitless) {
	m.change(func() { m.records[filesystem] = record })
}

// Forget removes the record of a filesystem, if there is one.
func (m *Memory) Forget(filesystem string) {
	if _, known := m.Records()[filesystem]; known {
		m.change(func() { delete(m.records, filesystem) })
	}
}

func (m *Memory) change(apply func()) {
	if m == nil {
		return
	}
	m.mu.Lock()
	apply()
	m.mu.Unlock()
	m.store.Save(func() any { return m.Records() })
}
