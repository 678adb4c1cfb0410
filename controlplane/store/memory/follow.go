package memory

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"hostler.io/hostler/controlplane/store"
)

// change is what a Follow reports next.
type change struct {
	begins, synced, deleted bool
	name                    string
	value                   []byte
	revision, reached       int64
}

// watch is a Follow in progress. The mutex of the Store guards it.
type watch struct {
	kind    store.Kind
	scope   store.Scope
	pending []change
	changed chan struct{} // receives when something is pending; has a buffer of one
}

// Follow implements store.Store.
func (s *Store) Follow(ctx context.Context, kind store.Kind, scope store.Scope, f store.Follower) error {
	if _, err := s.Begin(ctx, Follow, kind.Name); err != nil {
		return err
	}
	err := s.Watch(ctx, func(ctx context.Context) error { return s.follow(ctx, kind, scope, f) }, Follow, Any)
	return fmt.Errorf("%s %s: %w", Follow, kind.Name, err)
}

func (s *Store) follow(ctx context.Context, kind store.Kind, scope store.Scope, f store.Follower) error {
	w := &watch{kind: kind, scope: scope, changed: make(chan struct{}, 1)}
	s.mu.Lock()
	s.watches[w] = struct{}{}
	s.list(w)
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.watches, w)
	}()
	ticker := time.NewTicker(store.ConfirmInterval)
	defer ticker.Stop()
	for {
		select {
		case <-w.changed:
		case <-ticker.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		s.mu.Lock()
		pending, asked := w.pending, time.Now()
		w.pending = nil
		s.mu.Unlock()
		for _, c := range pending {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			c.report(kind, f)
		}
		store.Confirmed(f, asked)
	}
}

// list makes a watch start again with a list, instead of changes that it has not reported yet. The
// caller holds mu.
func (s *Store) list(w *watch) {
	w.pending = []change{{begins: true}}
	for _, name := range s.names(w.kind) {
		e := s.objects[w.kind.Folder()+name]
		w.pending = append(w.pending, change{name: name, value: e.value, revision: e.revision})
	}
	w.add(change{synced: true, revision: s.revision})
}

// report adds a change of an object to the watches of its kind. The caller holds mu.
func (s *Store) report(path string, c change) {
	for w := range s.watches {
		name, below := strings.CutPrefix(path, w.kind.Folder())
		if !below || !w.kind.Is(name) || w.scope == store.Deletions && s.o.EndsLeases && !c.deleted {
			continue
		}
		c.name, c.reached = name, s.revision
		w.add(c)
	}
}

func (w *watch) add(c change) {
	w.pending = append(w.pending, c)
	select {
	case w.changed <- struct{}{}:
	default: // an earlier signal was not received yet
	}
}

// report reports a change to a Follower.
func (c change) report(kind store.Kind, f store.Follower) {
	switch {
	case c.begins:
		f.Begin()
		return
	case c.synced:
		f.Synced()
		store.Reached(f, strconv.FormatInt(c.revision, 10))
		return
	}
	o, err := decode(kind, c.name, c.value, c.revision)
	switch {
	case c.deleted && err != nil:
		f.Delete(c.name, nil)
	case c.deleted:
		f.Delete(c.name, o)
	case err != nil:
		f.Unreadable(c.name, err)
	default:
		f.Set(c.name, o)
	}
	if c.reached > 0 { // it is 0 in a list
		store.Reached(f, strconv.FormatInt(c.reached, 10))
	}
}
