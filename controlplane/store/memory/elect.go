package memory

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/store"
)

// holds returns the record of the term; nil if the term has ended. The caller holds mu.
func (s *fleet) holds(term store.Term) *election {
	if e := s.elections[term.Controller]; e != nil && e.token == term.Token && e.leader != (store.Leader{}) {
		return e
	}
	return nil
}

// Leads reports whether a term has not ended. It has no faults.
func (s *fleet) Leads(term store.Term) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.holds(term) != nil
}

// callElection makes a call on a controller or a setting, with its fault.
func (s *Store) callElection(ctx context.Context, c Call, name string, serve func() error) error {
	err := s.do(ctx, c, name, func(Fault) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		return serve()
	})
	if err != nil {
		return fmt.Errorf("%s %s: %w", c, name, err)
	}
	return nil
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

// Elect implements store.Store.
func (s *Store) Elect(ctx context.Context, controller, candidate string, ttl time.Duration) (store.Term, store.Leader, error) {
	if err := store.CheckElect(controller, candidate, ttl); err != nil {
		return store.Term{}, store.Leader{}, err
	}
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

// Extend implements store.Store.
func (s *Store) Extend(ctx context.Context, term store.Term) error {
	ctx, cancel, err := s.within(ctx, term)
	if err != nil {
		return fmt.Errorf("%s %s: %w", Extend, term.Controller, err)
	}
	defer cancel()
	sent := time.Now()
	err = s.callElection(ctx, Extend, term.Controller, func() error {
		e := s.holds(term)
		if e == nil {
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

// Resign implements store.Store.
func (s *Store) Resign(ctx context.Context, term store.Term) error {
	s.terms.resign(term)
	return s.callElection(ctx, Resign, term.Controller, func() error {
		if e := s.holds(term); e != nil {
			s.revision++
			e.leader, e.version = store.Leader{}, s.number()
		}
		return nil
	})
}

// Leader implements store.Store.
func (s *Store) Leader(ctx context.Context, controller string) (store.Leader, error) {
	e, err := s.record(ctx, Leader, controller)
	if err != nil || !s.terms.alive(controller, e) {
		return store.Leader{}, err
	}
	return e.leader, nil
}
