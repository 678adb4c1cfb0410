package memory

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"hostler.io/hostler/controlplane/store"
)

// current returns the term of a controller; nil if there is none. The caller holds mu.
func (s *fleet) current(controller string) *election {
	if e := s.elections[controller]; e != nil && (s.away || time.Now().Before(e.ends)) {
		return e
	}
	return nil
}

// holds returns the record of the term; nil if the term has ended. The caller holds mu.
func (s *fleet) holds(term store.Term) *election {
	if e := s.current(term.Controller); e != nil && e.token == term.Token {
		return e
	}
	return nil
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

// Elect implements store.Store.
func (s *Store) Elect(ctx context.Context, controller, candidate string, ttl time.Duration) (store.Term, store.Leader, error) {
	if err := store.CheckElect(controller, candidate, ttl); err != nil {
		return store.Term{}, store.Leader{}, err
	}
	if s.o.LocalTerms {
		return s.electLocally(ctx, controller, candidate, ttl)
	}
	var term store.Term
	var leader store.Leader
	err := s.callElection(ctx, Elect, controller, func() error {
		if e := s.current(controller); e != nil {
			leader = e.leader
			return nil
		}
		s.revision++
		term = store.Term{Controller: controller, Candidate: candidate, TTL: ttl, Token: strconv.FormatInt(s.number(), 10)}
		leader = store.Leader{Candidate: candidate, Since: s.o.Now()}
		s.elections[controller] = &election{leader: leader, token: term.Token, ttl: ttl, ends: time.Now().Add(ttl)}
		return nil
	})
	if err != nil {
		return store.Term{}, store.Leader{}, err
	}
	return term, leader, nil
}

// Extend implements store.Store.
func (s *Store) Extend(ctx context.Context, term store.Term) error {
	if s.o.LocalTerms {
		return s.extendLocally(ctx, term)
	}
	return s.callElection(ctx, Extend, term.Controller, func() error {
		e := s.holds(term)
		if e == nil {
			return store.ErrDeposed
		}
		e.ends = time.Now().Add(term.TTL)
		return nil
	})
}

// Resign implements store.Store.
func (s *Store) Resign(ctx context.Context, term store.Term) error {
	if s.o.LocalTerms {
		return s.resignLocally(ctx, term)
	}
	return s.callElection(ctx, Resign, term.Controller, func() error {
		if s.holds(term) != nil {
			delete(s.elections, term.Controller)
		}
		return nil
	})
}

// Leader implements store.Store.
func (s *Store) Leader(ctx context.Context, controller string) (store.Leader, error) {
	if s.o.LocalTerms {
		return s.leaderLocally(ctx, controller)
	}
	var leader store.Leader
	err := s.callElection(ctx, Leader, controller, func() error {
		if e := s.current(controller); e != nil {
			leader = e.leader
		}
		return nil
	})
	return leader, err
}
