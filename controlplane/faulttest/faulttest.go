// Package faulttest injects faults into the calls of fakes. It owns which fault affects which call,
// how often, and how calls are counted.
package faulttest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"hostler.io/hostler/controlplane"
)

// timeout bounds a call whose context has no deadline.
const timeout = 30 * time.Second

// Fault is what goes wrong with a call. Its parts add up; a fake says which it has.
type Fault struct {
	Delay      time.Duration   // passes before the call is served
	Until      <-chan struct{} // is closed before the call is served; nil for no wait
	Hang       bool            // nothing returns until the context ends
	Err        error           // returns instead of being served
	LoseAnswer bool            // it is served, and ErrUnavailable returns
	Stale      bool            // what returns is the object before its last change
	Conflict   bool            // another client writes the object right before the call
	LeaseStays bool            // a Node is deleted without its Lease
	Times      int             // how many calls it befalls; 0 means all until Heal
}

// Book keeps the faults of one fake, whose calls are named; the empty name stands for any.
// Use NewBook. It is safe for concurrent use.
type Book[Call ~string] struct {
	mu      sync.Mutex // guards what follows
	faults  map[Call]*Fault
	calls   map[Call]int
	changed chan struct{} // closed and replaced with each Inject
}

// NewBook returns one without faults.
func NewBook[Call ~string]() *Book[Call] {
	return &Book[Call]{faults: map[Call]*Fault{}, calls: map[Call]int{}, changed: make(chan struct{})}
}

// Inject makes a fault befall calls of that name from now on, in place of an earlier one;
// the empty name means those without one of their own. A watch in progress ends with Err, or
// falls silent for good with Hang.
func (b *Book[Call]) Inject(call Call, fault Fault) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.faults[call] = &fault
	close(b.changed)
	b.changed = make(chan struct{})
}

// Heal ends all faults. Calls that hang continue hanging, as on a dead connection.
func (b *Book[Call]) Heal() {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.faults)
}

// Calls counts those calls so far, or all for the empty name, whatever became of them.
func (b *Book[Call]) Calls(call Call) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if call != "" {
		return b.calls[call]
	}
	sum := 0
	for _, n := range b.calls {
		sum += n
	}
	return sum
}

// Begin counts a call and suffers its fault, of which it returns what is left to do.
func (b *Book[Call]) Begin(ctx context.Context, call Call, what string) (Fault, error) {
	fault, err := b.next(call), context.Cause(ctx)
	if err == nil {
		err = fault.apply(ctx)
	}
	if err != nil {
		return fault, fmt.Errorf("%s %s: %w", call, what, err)
	}
	return fault, nil
}

// next counts a call, and returns the fault that befalls it; the zero value if none does.
func (b *Book[Call]) next(call Call) Fault {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls[call]++
	for _, of := range []Call{call, ""} {
		f := b.faults[of]
		if f == nil {
			continue
		}
		if f.Times == 1 {
			delete(b.faults, of)
		}
		fault := *f
		f.Times = max(0, f.Times-1)
		return fault
	}
	return Fault{}
}

// apply waits for as long as the fault keeps a call, hanging until ctx ends at most, and
// returns why that ended, or what else comes in the place of its being served.
func (f Fault) apply(ctx context.Context) error {
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	if f.Hang {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	if f.Delay > 0 {
		select {
		case <-time.After(f.Delay):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if f.Until != nil {
		select {
		case <-f.Until:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return f.Err
}

// Answer is an error where the answer of a call that was served is lost.
func (f Fault) Answer() error {
	if !f.LoseAnswer {
		return nil
	}
	return fmt.Errorf("answer lost: %w", controlplane.ErrUnavailable)
}

// Watch watches until ctx ends, or a fault befalls one of those calls.
func (b *Book[Call]) Watch(ctx context.Context, watch func(context.Context) error, calls ...Call) error {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan error, 1)
	go func() { done <- watch(watching) }()
	for {
		fault, changed := b.under(calls)
		if fault.Hang || fault.Err != nil {
			stop()
			<-done
			if fault.Hang {
				<-ctx.Done()
				return context.Cause(ctx)
			}
			return fault.Err
		}
		select {
		case err := <-done:
			return err
		case <-changed:
		}
	}
}

// under is the first fault that there is of those names, for a call that is in progress, and
// what is closed with the next one.
func (b *Book[Call]) under(calls []Call) (Fault, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, call := range calls {
		if f := b.faults[call]; f != nil {
			return *f, b.changed
		}
	}
	return Fault{}, b.changed
}
