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

// Fault is the fault of a call. Its parts can be combined; each fake documents which ones it
// supports.
type Fault struct {
	Delay      time.Duration   // wait before the call is served
	Until      <-chan struct{} // the call is served once this is closed; nil for no wait
	Hang       bool            // the call returns only when its context ends
	Err        error           // returned instead of serving the call
	LoseAnswer bool            // the call is served, but returns ErrUnavailable
	Stale      bool            // the answer has the object before its last change
	Conflict   bool            // another client writes the object right before the call
	LeaseStays bool            // Leave deletes the Node, but not the Lease
	Times      int             // number of calls with the fault; 0 means all until Heal
}

// Book has the faults of one fake, by the name of the call; the empty name means any call. Use
// NewBook. It is safe for concurrent use.
type Book[Call ~string] struct {
	mu      sync.Mutex // guards the fields below
	faults  map[Call]*Fault
	calls   map[Call]int
	changed chan struct{} // closed and replaced with each Inject
}

// NewBook returns a Book without faults.
func NewBook[Call ~string]() *Book[Call] {
	return &Book[Call]{faults: map[Call]*Fault{}, calls: map[Call]int{}, changed: make(chan struct{})}
}

// Inject gives calls of that name a fault, instead of an earlier one. The empty name means all
// calls without a fault of their own. With Err, a watch in progress ends; with Hang, it sends
// nothing more.
func (b *Book[Call]) Inject(call Call, fault Fault) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.faults[call] = &fault
	close(b.changed)
	b.changed = make(chan struct{})
}

// Heal ends all faults. Calls that hang stay blocked, as on a dead connection.
func (b *Book[Call]) Heal() {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.faults)
}

// Calls returns the number of calls of that name so far, or of all calls for the empty name. Failed
// calls count.
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

// Begin counts a call and applies its fault. It returns the fault, because the fake has to apply
// some parts itself.
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

// next counts a call, and returns its fault; the zero value if there is none.
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

// apply waits as the fault demands, until ctx ends at most. It returns an error if the call must
// not be served.
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

// Answer returns an error if the fault loses the answer of a served call.
func (f Fault) Answer() error {
	if !f.LoseAnswer {
		return nil
	}
	return fmt.Errorf("answer lost: %w", controlplane.ErrUnavailable)
}

// Watch calls watch until ctx ends, or until one of those calls gets a fault.
func (b *Book[Call]) Watch(ctx context.Context, watch func(context.Context) error, calls ...Call) error {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan error, 1)
	go func() { done <- watch(watching) }()
	for {
		fault, changed := b.faultOf(calls)
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

// faultOf returns the first fault of those names, for a call in progress, and a channel that the next
// Inject closes.
func (b *Book[Call]) faultOf(calls []Call) (Fault, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, call := range calls {
		if f := b.faults[call]; f != nil {
			return *f, b.changed
		}
	}
	return Fault{}, b.changed
}
