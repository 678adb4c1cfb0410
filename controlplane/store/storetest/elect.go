package storetest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/store"
)

const controller = "test-controller"

// elect makes one attempt to get a term of that duration.
func (b *bench) elect(s store.Store, candidate string, ttl time.Duration) (store.Term, store.Leader) {
	b.Helper()
	term, leader, err := s.Elect(b.ctx, controller, candidate, ttl)
	if err != nil {
		b.Fatalf("Elect(%s) = %v, want no error", candidate, err)
	}
	if won := term != (store.Term{}); won && (leader.Candidate != candidate || term.Candidate != candidate || term.Controller != controller || term.TTL != ttl || term.Token == "") {
		b.Fatalf("Elect(%s) = %+v, %+v, want its own term and leadership", candidate, term, leader)
	} else if leader.Candidate == "" || leader.Since.IsZero() {
		b.Fatalf("Elect(%s) = %+v, %+v, want a leader", candidate, term, leader)
	}
	return term, leader
}

// wins calls elect, which has to succeed.
func (b *bench) wins(s store.Store, candidate string, ttl time.Duration) store.Term {
	b.Helper()
	term, leader := b.elect(s, candidate, ttl)
	if term == (store.Term{}) {
		b.Fatalf("Elect(%s) returned the leader %q, want a term", candidate, leader.Candidate)
	}
	return term
}

// succeeds tries until the candidate is elected for a term of that duration.
func (b *bench) succeeds(s store.Store, candidate string, ttl time.Duration) store.Term {
	b.Helper()
	for {
		if term, _ := b.elect(s, candidate, ttl); term != (store.Term{}) {
			return term
		}
		b.pause()
	}
}

// pause waits for the interval of a candidate.
func (b *bench) pause() {
	b.Helper()
	select {
	case <-time.After(retry):
	case <-b.ctx.Done():
		b.Fatal(context.Cause(b.ctx))
	}
}

// leads checks who leads; an empty candidate means no leader.
func (b *bench) leads(candidate string) {
	b.Helper()
	leader, err := b.Store.Leader(b.ctx, controller)
	if err != nil || leader.Candidate != candidate {
		b.Errorf("Leader() = %+v, %v, want %q", leader, err, candidate)
	}
}

// deposed checks that a term has ended.
func (b *bench) deposed(s store.Store, term store.Term) {
	b.Helper()
	b.refused(s, "a", store.Preconditions{Term: term}, "under a term that has ended", store.ErrDeposed)
	if err := s.Extend(b.ctx, term); !errors.Is(err, store.ErrDeposed) {
		b.Errorf("Extend() of a term that has ended = %v, want an error that is %q", err, store.ErrDeposed)
	}
	if err := s.Resign(b.ctx, term); err != nil {
		b.Errorf("Resign() of a term that has ended = %v, want no error", err)
	}
}

func checkElect(b *bench) {
	b.put(store.Nodes, newNode("a"))
	b.leads("")
	stores := []store.Store{b.Store, b.Another(b.T)}
	type result struct {
		candidate string
		term      store.Term
		leader    store.Leader
		err       error
	}
	const candidates = 8
	results := make(chan result, candidates)
	for i := range candidates {
		go func() {
			r := result{candidate: fmt.Sprintf("candidate-%d", i)}
			r.term, r.leader, r.err = stores[i%len(stores)].Elect(b.ctx, controller, r.candidate, time.Hour)
			results <- r
		}()
	}
	elected, leaders := "", map[string]bool{}
	for range candidates {
		r := <-results
		if r.err != nil {
			b.Fatalf("Elect(%s) = %v, want no error", r.candidate, r.err)
		}
		if leaders[r.leader.Candidate] = true; r.term == (store.Term{}) {
			continue
		}
		if elected != "" {
			b.Errorf("elected = %s and %s, want one of them", elected, r.candidate)
		}
		elected = r.candidate
	}
	if len(leaders) != 1 || !leaders[elected] {
		b.Errorf("leaders = %v, want %q, who was elected", leaders, elected)
	}
	b.leads(elected)
	if _, _, err := b.Store.Elect(b.ctx, "another-controller", "x", time.Hour); err != nil {
		b.Errorf("Elect() for another controller = %v, want no error", err)
	}
	if leader, err := b.Store.Leader(b.ctx, "another-controller"); err != nil || leader.Candidate != "x" {
		b.Errorf("Leader() of another controller = %+v, %v, want its own", leader, err)
	}
}

func checkExtend(b *bench) {
	b.put(store.Nodes, newNode("a"))
	another := b.Another(b.T)
	for ttl := ttl; !b.outlasts(another, ttl); ttl *= 2 {
		b.Logf("a term of %v has ended between two extensions: this machine is busy, or Extend() has no effect", ttl)
	}
}

// outlasts extends a term for twice its duration. It returns false if the term ended before it was
// extended.
func (b *bench) outlasts(another store.Store, ttl time.Duration) bool {
	b.Helper()
	term := b.succeeds(b.Store, "a", ttl)
	for until := time.Now().Add(2 * ttl); time.Now().Before(until); b.pause() {
		if err := b.Store.Extend(b.ctx, term); errors.Is(err, store.ErrDeposed) {
			return false
		} else if err != nil {
			b.Fatalf("Extend() = %v, want no error", err)
		}
		other, _ := b.elect(another, "b", ttl)
		if other == (store.Term{}) {
			continue
		}
		if err := b.Store.Extend(b.ctx, term); !errors.Is(err, store.ErrDeposed) {
			b.Fatalf("Elect(b) = %+v while the term of a lasts, want no term", other)
		}
		if err := another.Resign(b.ctx, other); err != nil {
			b.Fatal(err)
		}
		return false
	}
	if err := b.Store.Delete(b.ctx, store.Nodes, "a", store.Preconditions{Term: term}, ""); errors.Is(err, store.ErrDeposed) {
		return false
	} else if err != nil {
		b.Errorf("Delete() under a term = %v, want no error", err)
	}
	return true
}

func checkTermEnds(b *bench) {
	b.put(store.Nodes, newNode("a"))
	another, first := b.Another(b.T), b.wins(b.Store, "a", ttl)
	second := b.succeeds(another, "b", lasting)
	b.deposed(b.Store, first)
	if second.Token == first.Token {
		b.Errorf("tokens of two terms = %q, want two", first.Token)
	}
	if _, err := another.Update(b.ctx, store.Nodes, "a", store.Preconditions{Term: second}, marks("1")); err != nil {
		b.Errorf("Update() under the next term = %v, want no error", err)
	}
	if err := another.Resign(b.ctx, second); err != nil {
		b.Fatal(err)
	}
	// The candidate of the third term must not be able to use its first term.
	third := b.succeeds(b.Store, "a", lasting)
	b.deposed(b.Store, first)
	if third.Token == first.Token {
		b.Errorf("tokens of two terms = %q, want two", first.Token)
	}
}

func checkResign(b *bench) {
	b.put(store.Nodes, newNode("a"))
	another, first := b.Another(b.T), b.wins(b.Store, "a", lasting)
	if err := b.Store.Resign(b.ctx, first); err != nil {
		b.Fatalf("Resign() = %v, want no error", err)
	}
	b.leads("")
	b.deposed(b.Store, first)
	b.wins(another, "b", lasting)
	b.deposed(b.Store, first)
	b.leads("b")
}

func checkTTL(b *bench) {
	for _, d := range []time.Duration{0, -time.Second, time.Second / 2, 3 * time.Second / 2} {
		if _, _, err := b.Store.Elect(b.ctx, controller, "a", d); !errors.Is(err, controlplane.ErrInvalid) {
			b.Errorf("Elect() for %v = %v, want an error that is %q", d, err, controlplane.ErrInvalid)
		}
	}
	b.leads("")
}
