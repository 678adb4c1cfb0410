package store

import (
	"maps"
	"sync"
)

// Table is a Follower that has an entry for each object of a kind. It is safe for concurrent use.
type Table[T any] struct {
	record
	take    func(before T, object Object, listing bool) (now T, news bool)
	changed func()

	mu      sync.Mutex // guards the fields below
	entries map[string]listed[T]
	lists   int
	ready   bool
}

// listed is an entry, and the number of the last list that contained its object.
type listed[T any] struct {
	entry T
	list  int
}

// NewTable returns an empty table for objects of a kind. take returns the entry of an object that is new or has changed,
// and whether the change matters. before is the zero value for a new object. listing is true for an object of a list: it
// may have changed at any time before. An unreadable object has the zero value, since what it was before is no fact any
// more; or, if T has such a method, what Unread(name string) T of its entry returns. changed is called after a change
// that matters, a new object and a deletion.
func NewTable[T any](kind Kind, take func(before T, object Object, listing bool) (now T, news bool), changed func()) *Table[T] {
	return &Table[T]{record: record{kind: kind.Name, listing: true}, take: take, changed: changed, entries: map[string]listed[T]{}}
}

// Len returns the number of objects.
func (t *Table[T]) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.entries)
}

// Has reports whether an object of that name exists.
func (t *Table[T]) Has(name string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, exists := t.entries[name]
	return exists
}

// Entries returns all entries, in no order.
func (t *Table[T]) Entries() []T { return t.Select(func(T) bool { return true }) }

// Select returns the entries for which keep returns true, in no order.
func (t *Table[T]) Select(keep func(T) bool) []T {
	t.mu.Lock()
	defer t.mu.Unlock()
	var entries []T
	for _, e := range t.entries {
		if keep(e.entry) {
			entries = append(entries, e.entry)
		}
	}
	return entries
}

// Begin implements Follower.
func (t *Table[T]) Begin() {
	t.record.begin()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lists++
	t.ready = false
}

// Set implements Follower.
func (t *Table[T]) Set(name string, o Object) {
	t.record.count()
	t.mu.Lock()
	defer t.mu.Unlock()
	before, known := t.entries[name]
	now, news := t.take(before.entry, o, !t.ready)
	t.entries[name] = listed[T]{now, t.lists}
	if news || !known {
		t.changed()
	}
}

// Unreadable implements Follower.
func (t *Table[T]) Unreadable(name string, _ error) {
	t.record.count()
	t.mu.Lock()
	defer t.mu.Unlock()
	now := listed[T]{list: t.lists}
	if keeps, is := any(t.entries[name].entry).(interface{ Unread(name string) T }); is {
		now.entry = keeps.Unread(name)
	}
	t.entries[name] = now
	t.changed()
}

// Delete implements Follower.
func (t *Table[T]) Delete(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.entries, name)
	t.changed()
}

// Synced implements Follower.
func (t *Table[T]) Synced() {
	defer t.record.synced()
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.entries, func(_ string, e listed[T]) bool { return e.list != t.lists })
	t.ready = true
	t.changed()
}
