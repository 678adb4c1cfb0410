package memory

import (
	"context"
	"fmt"

	"hostler.io/hostler/controlplane/store"
)

// List, Event and Progress are the requests of a Follow: its list, and the report of one change or of the latest
// revision. Only a Network sees them.
const (
	List  Call = "List"
	Event Call = "Event"
	// Progress is the read of the latest revision, which a Follow has to reach.
	Progress Call = "Progress"
)

// Request is a message between a process and the store.
type Request struct {
	Call   Call
	Object string // KIND/NAME; KIND for a Follow; the controller of an election
	// Preconditions are those of a write; the zero value for other requests.
	store.Preconditions
}

// Network carries the requests of one process. It is safe for concurrent use.
type Network interface {
	// Do calls serve when the request reaches the store, at most once, and returns the error of serve, or
	// why there is no answer. It may call serve after it has returned that there is no answer.
	Do(ctx context.Context, r Request, serve func() error) error
}

// Over returns the store as a process sees it over a network. The faults of the Book do not affect
// this process, unless the network is nil.
func (s *Store) Over(n Network) *Store {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &Store{Book: s.Book, fleet: s.fleet, network: n, terms: newTerms(), pinged: &position{epoch: s.history.epoch}}
}

// do makes a request.
func (s *Store) do(ctx context.Context, c Call, object string, serve func(Fault) error) error {
	return s.request(ctx, Request{Call: c, Object: object}, serve)
}

// request makes a request, with its fault.
func (s *Store) request(ctx context.Context, r Request, serve func(Fault) error) error {
	if s.network != nil {
		return s.network.Do(ctx, r, func() error { return serve(Fault{}) })
	}
	fault, err := s.Begin(ctx, r.Call, r.Object)
	if err != nil {
		return err
	}
	if err := serve(fault); err != nil {
		return err
	}
	return fault.Answer()
}

// call makes a call on an object, with its fault.
func (s *Store) call(ctx context.Context, c Call, kind store.Kind, name string, serve func(Fault) error) error {
	return s.write(ctx, c, kind, name, store.Preconditions{}, serve)
}

// write is call with preconditions, in their term.
func (s *Store) write(ctx context.Context, c Call, kind store.Kind, name string, pre store.Preconditions, serve func(Fault) error) error {
	if err := kind.CheckCall(ctx, string(c)+" "+kind.Name, name); err != nil {
		return err
	}
	ctx, cancel, err := s.within(ctx, pre.Term)
	if err != nil {
		return fmt.Errorf("%s %s/%s: %w", c, kind.Name, name, err)
	}
	defer cancel()
	if err := s.request(ctx, Request{c, kind.Name + "/" + name, pre}, serve); err != nil {
		return fmt.Errorf("%s %s/%s: %w", c, kind.Name, name, err)
	}
	return nil
}
