package memory

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"hostler.io/hostler/controlplane/store"
)

// Follow implements store.Store.
func (s *Store) Follow(ctx context.Context, kind store.Kind, scope store.Scope, f store.Follower) error {
	follow := func(ctx context.Context) error { return s.follow(ctx, kind, scope, f) }
	var err error
	if s.network != nil {
		err = follow(ctx)
	} else {
		if _, err := s.Begin(ctx, Follow, kind.Name); err != nil {
			return err
		}
		err = s.Watch(ctx, follow, Follow, Any)
	}
	return fmt.Errorf("%s %s: %w", Follow, kind.Name, err)
}

func (s *Store) follow(ctx context.Context, kind store.Kind, scope store.Scope, f store.Follower) error {
	w := &watch{kind: kind, scope: scope, lists: -1, changed: make(chan struct{}, 1)}
	s.open(w)
	defer s.close(w)
	p := newProgress(s, w, f)
	defer p.ticker.Stop()
	for {
		next, listed := s.next(w)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !listed:
			asked := time.Now()
			if err := s.list(ctx, w, f); err != nil {
				return err
			}
			p.waits = nil
			store.Confirmed(f, asked)
			continue
		case next == nil && p.waits != nil:
			next = s.mark(w)
		case next == nil:
			if err := p.await(ctx); err != nil {
				return err
			}
			continue
		}
		if err := s.send(ctx, w, *next); err != nil {
			return err
		}
		next.tell(kind, f)
		p.reached(next.at)
	}
}

// open adds a watch. It needs no change from before its list.
func (s *Store) open(w *watch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.at = s.revision
	s.history.watches = append(s.history.watches, w)
}

func (s *Store) close(w *watch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.history.watches = slices.DeleteFunc(s.history.watches, func(other *watch) bool { return other == w })
}

// report is what a watch reports next.
type report struct {
	name    string // empty if only a revision is reported
	value   []byte
	version string // of the object
	deleted bool
	reached string // empty in a list
	at      int64
}

// next returns the next change that a watch has to report; nil if there is none. listed is false if it
// has to list first.
func (s *Store) next(w *watch) (next *report, listed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.lists != s.history.lists {
		return nil, false
	}
	for _, c := range s.history.after(w.at) {
		if s.matches(w, c) {
			version := s.version(c.revision)
			return &report{strings.TrimPrefix(c.path, w.kind.Folder()), c.value, version, c.deleted, version, c.revision}, true
		}
	}
	w.at = s.revision
	return nil, true
}

// mark returns a report of the revision that the watch has reached.
func (s *Store) mark(w *watch) *report {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &report{reached: s.version(w.at), at: w.at}
}

// list reports all objects of the kind at one revision.
func (s *Store) list(ctx context.Context, w *watch, f store.Follower) error {
	var all []report
	read := func(Fault) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		all = nil
		for _, name := range s.names(w.kind) {
			e := s.objects[w.kind.Folder()+name]
			all = append(all, report{name: name, value: e.value, version: s.version(e.revision)})
		}
		w.at, w.lists = s.revision, s.history.lists
		return nil
	}
	err := error(nil)
	if s.network == nil {
		err = read(Fault{})
	} else {
		err = s.do(ctx, List, w.kind.Name, read)
	}
	if err != nil {
		return err
	}
	f.Begin()
	for _, o := range all {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		o.tell(w.kind, f)
	}
	f.Synced()
	store.Reached(f, s.mark(w).reached)
	return nil
}

// send waits until the network has carried a report to the process, and moves the watch.
func (s *Store) send(ctx context.Context, w *watch, r report) error {
	if s.network != nil {
		if err := s.do(ctx, Event, strings.TrimSuffix(w.kind.Name+"/"+r.name, "/"), func(Fault) error { return nil }); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	w.at = max(w.at, r.at)
	return nil
}

// tell reports to a Follower.
func (r report) tell(kind store.Kind, f store.Follower) {
	if r.name != "" {
		if r.deleted {
			f.Delete(r.name)
		} else if o, err := decode(kind, r.name, r.value, r.version); err != nil {
			f.Unreadable(r.name, err)
		} else {
			f.Set(r.name, o)
		}
	}
	if r.reached != "" {
		store.Reached(f, r.reached)
	}
}
