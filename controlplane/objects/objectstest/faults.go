package objectstest

import (
	"context"
	"fmt"
	"time"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/faulttest"
	"hostler.io/hostler/controlplane/objects"
)

// Call names a method of objects.Store.
type Call string

// The methods that a Fault can befall.
const (
	Any    Call = ""
	Get    Call = "get"
	Put    Call = "put"
	Delete Call = "delete"
	List   Call = "list"
	Watch  Call = "watch"
)

// Fault is what goes wrong with a call. Its parts add up.
type Fault struct {
	Delay      time.Duration // passes before the call is served
	Hang       bool          // nothing comes back until the context ends
	Err        error         // comes back instead of being served
	LoseAnswer bool          // it is served, and ErrUnavailable comes back
	Conflict   bool          // somebody else writes the object right before a Put or Delete
	LeaseStays bool          // a Delete of a Node leaves its Lease
	Times      int           // how many calls it befalls; 0 means all until Heal
}

// Inject makes a fault befall those calls from now on, in place of an earlier one; Any
// means those without one of their own. A watch under way ends with Err, or falls
// silent for good with Hang, if the fault is its own.
func (s *Store) Inject(call Call, fault Fault) {
	s.faults.Inject(call, fault, fault.Times)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wake()
}

// Heal ends all faults. Calls that hang go on hanging, as on a dead connection.
func (s *Store) Heal() { s.faults.Heal() }

// Calls counts those calls so far, or all for Any, whatever became of them.
func (s *Store) Calls(call Call) int { return s.faults.Calls(call) }

// call counts a call and suffers the fault, of which it returns what is left to do.
func (s *Store) call(ctx context.Context, call Call, what string) (Fault, error) {
	fault, err := s.faults.Begin(call), context.Cause(ctx)
	if err == nil {
		err = faulttest.Suffer(ctx, fault.Delay, fault.Hang, fault.Err)
	}
	if err != nil {
		return fault, fmt.Errorf("%s %s: %w", call, what, err)
	}
	return fault, nil
}

// answer is an error where the answer is lost.
func (f Fault) answer(call Call, key objects.Key) error {
	if !f.LoseAnswer {
		return nil
	}
	return fmt.Errorf("%s %s: answer lost: %w", call, key, controlplane.ErrUnavailable)
}
