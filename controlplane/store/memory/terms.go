package memory

import (
	"context"
	"strconv"
	"sync"
	"time"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/store"
)

// terms are the elections of one process. Others count the duration of a term from when they last saw its record
// change. With Options.LocalTerms, a write cannot compare its term, as on Kubernetes. So the process stops writing in
// its own term at a time on its own clock, counted from before the request that began or extended the term, which is
// before the others find that it has ended.
type terms struct {
	seen store.Sightings

	mu  sync.Mutex // guards own
	own map[string]ownTerm
}

// ownTerm is a term of this process.
type ownTerm struct {
	until    time.Time
	resigned bool
}

func newTerms() *terms { return &terms{own: map[string]ownTerm{}} }

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
	return e.leader != (store.Leader{}) && t.seen.Alive(controller, strconv.FormatInt(e.version, 10), e.ttl)
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
