package memory

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/store"
)

// terms are the elections of one process with Options.LocalTerms. As on Kubernetes, a write cannot
// compare its term. So the process stops writing in its own term at a time on its own clock, counted
// from before the request that began or extended the term. For other processes the term ends later: they
// count its duration from when they last saw the record change.
type terms struct {
	mu   sync.Mutex // guards the fields below
	own  map[string]ownTerm
	seen map[string]sight
}

// ownTerm is a term of this process.
type ownTerm struct {
	until    time.Time
	resigned bool
}

// sight is when the record of a controller was last seen to change.
type sight struct {
	version int64
	since   time.Time
}

func newTerms() *terms { return &terms{own: map[string]ownTerm{}, seen: map[string]sight{}} }

// within limits a write to the remaining time of its term; ErrDeposed if the term has ended.
func (t *terms) within(ctx context.Context, term store.Term) (context.Context, context.CancelFunc, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	own := t.own[term.Token]
	if own.resigned || !time.Now().Before(own.until) {
		return nil, nil, store.ErrDeposed
	}
	ctx, cancel := context.WithDeadlineCause(ctx, own.until, controlplane.ErrNoAnswer)
	return ctx, cancel, nil
}

// within limits a write in a term; see terms.within.
func (s *Store) within(ctx context.Context, term store.Term) (context.Context, context.CancelFunc, error) {
	if !s.o.LocalTerms || term == (store.Term{}) {
		return ctx, func() {}, nil
	}
	return s.terms.within(ctx, term)
}

// alive reports whether a record names a leader whose term may last.
func (t *terms) alive(controller string, e election) bool {
	if e.leader == (store.Leader{}) {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.seen[controller]
	if s.version != e.version {
		t.seen[controller] = sight{e.version, time.Now()}
		return true
	}
	return time.Since(s.since) < e.ttl
}

// lasts makes a term of this process last for its ttl after a request was sent. It returns false if it
// was resigned since.
func (t *terms) lasts(term store.Term, sent time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	own := t.own[term.Token]
	if until := sent.Add(term.TTL); !own.resigned && until.After(own.until) {
		own.until = until
	}
	t.own[term.Token] = own
	return !own.resigned
}

// resign prevents further writes in a term.
func (t *terms) resign(term store.Term) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.own[term.Token] = ownTerm{resigned: true}
}

// record reads the record of a controller; the zero value if there is none.
func (s *Store) record(ctx context.Context, c Call, controller string) (election, error) {
	var found election
	err := s.callElection(ctx, c, controller, func() error {
		if e := s.elections[controller]; e != nil {
			found = *e
		}
		return nil
	})
	return found, err
}

// rewriteRecord replaces the record of a controller if it has that version.
func (s *Store) rewriteRecord(ctx context.Context, c Call, controller string, version int64, next election) (election, error) {
	err := s.callElection(ctx, c, controller, func() error {
		stored := int64(0)
		if e := s.elections[controller]; e != nil {
			stored = e.version
		}
		if stored != version {
			return fmt.Errorf("%w: another candidate was faster", controlplane.ErrConflict)
		}
		s.revision++
		next.version = s.number()
		if next.token == "" {
			next.token = strconv.FormatInt(next.version, 10)
		}
		s.elections[controller] = &next
		return nil
	})
	return next, err
}

// electLocally is Elect with local terms.
func (s *Store) electLocally(ctx context.Context, controller, candidate string, ttl time.Duration) (store.Term, store.Leader, error) {
	e, err := s.record(ctx, Elect, controller)
	if err != nil {
		return store.Term{}, store.Leader{}, err
	}
	if s.terms.alive(controller, e) {
		return store.Term{}, e.leader, nil
	}
	sent := time.Now()
	won, err := s.rewriteRecord(ctx, Elect, controller, e.version, election{leader: store.Leader{Candidate: candidate, Since: s.o.Now()}, ttl: ttl})
	if errors.Is(err, controlplane.ErrConflict) {
		if e, err = s.record(ctx, Elect, controller); err == nil && e.leader != (store.Leader{}) {
			return store.Term{}, e.leader, nil
		}
	}
	if err != nil {
		return store.Term{}, store.Leader{}, err
	}
	term := store.Term{Controller: controller, Candidate: candidate, TTL: ttl, Token: won.token}
	s.terms.lasts(term, sent)
	return term, won.leader, nil
}

// extendLocally is Extend with local terms.
func (s *Store) extendLocally(ctx context.Context, term store.Term) error {
	ctx, cancel, err := s.terms.within(ctx, term)
	if err != nil {
		return fmt.Errorf("%s %s: %w", Extend, term.Controller, err)
	}
	defer cancel()
	sent := time.Now()
	err = s.callElection(ctx, Extend, term.Controller, func() error {
		e := s.elections[term.Controller]
		if e == nil || e.token != term.Token || e.leader == (store.Leader{}) {
			return store.ErrDeposed
		}
		s.revision++
		e.version = s.number()
		return nil
	})
	if err == nil && !s.terms.lasts(term, sent) {
		err = store.ErrDeposed
	}
	return err
}

// resignLocally is Resign with local terms.
func (s *Store) resignLocally(ctx context.Context, term store.Term) error {
	s.terms.resign(term)
	return s.callElection(ctx, Resign, term.Controller, func() error {
		if e := s.elections[term.Controller]; e != nil && e.token == term.Token {
			s.revision++
			e.leader, e.version = store.Leader{}, s.number()
		}
		return nil
	})
}

// leaderLocally is Leader with local terms.
func (s *Store) leaderLocally(ctx context.Context, controller string) (store.Leader, error) {
	e, err := s.record(ctx, Leader, controller)
	if err != nil || !s.terms.alive(controller, e) {
		return store.Leader{}, err
	}
	return e.leader, nil
}
