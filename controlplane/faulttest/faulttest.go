// Package faulttest is what goes wrong with the calls of a fake, at a test's wish. It
// owns which fault befalls which call, how often, and how calls are counted; it refuses
// to know what a fault is, but for how long a call suffers it.
package faulttest

import (
	"context"
	"sync"
	"time"
)

// timeout bounds a call whose context has no deadline.
const timeout = 30 * time.Second

// Book keeps the faults of one fake, whose calls are named; the empty name stands for any.
// Its zero value has none. It is safe for concurrent use.
type Book[Call ~string, Fault any] struct {
	mu     sync.Mutex // guards what follows
	faults map[Call]*entry[Fault]
	calls  map[Call]int
}

// entry is a fault, and how many calls it befalls yet; 0 means all.
type entry[Fault any] struct {
	fault Fault
	left  int
}

// Inject makes a fault befall so many calls of that name from now on, in place of an
// earlier one; all until Heal if that is 0.
func (b *Book[Call, Fault]) Inject(call Call, fault Fault, times int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.faults == nil {
		b.faults = map[Call]*entry[Fault]{}
	}
	b.faults[call] = &entry[Fault]{fault, times}
}

// Heal ends all faults.
func (b *Book[Call, Fault]) Heal() {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.faults)
}

// Calls counts those calls so far, or all for the empty name, whatever became of them.
func (b *Book[Call, Fault]) Calls(call Call) int {
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

// Begin counts a call, and returns the fault that befalls it; the zero value if none does.
func (b *Book[Call, Fault]) Begin(call Call) (fault Fault) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.calls == nil {
		b.calls = map[Call]int{}
	}
	b.calls[call]++
	e, of := b.faults[call], call
	if e == nil {
		e, of = b.faults[""], ""
	}
	if e == nil {
		return fault
	}
	if e.left > 0 {
		if e.left--; e.left == 0 {
			delete(b.faults, of)
		}
	}
	return e.fault
}

// Under is the first fault that there is of those names, for a call that is under way; the
// zero value if there is none.
func (b *Book[Call, Fault]) Under(calls ...Call) (fault Fault) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, call := range calls {
		if e := b.faults[call]; e != nil {
			return e.fault
		}
	}
	return fault
}

// Suffer waits for as long as a fault keeps a call, hanging until ctx ends at most, and
// returns why that ended, or what else comes in the place of its being served.
func Suffer(ctx context.Context, delay time.Duration, hang bool, instead error) error {
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	if hang {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	if delay > 0 {
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return instead
}
