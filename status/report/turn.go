package report

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// errPreempted ends work that a shutdown's report does not wait for.
var errPreempted = errors.New("interrupted to report a shutdown first")

// turn is the lock that guards what the Reporter knows of the host and of the stored Node. Waiting
// for it can have a deadline, and its holder yields to urgent callers.
type turn struct {
	token chan struct{} // holds one token while nobody has the turn

	mu        sync.Mutex              // guards what follows
	urgent    int                     // callers that wait and may not be kept waiting
	interrupt context.CancelCauseFunc // ends the work of whoever has the turn; nil if it may not be ended
}

func newTurn() *turn {
	t := &turn{token: make(chan struct{}, 1)}
	t.token <- struct{}{}
	return t
}

// take waits until the turn is free or ctx ends. The work is done under the context that it
// returns, which ends with errPreempted as its cause when an urgent caller waits; the work
// of an urgent caller is not ended. release gives the turn back.
func (t *turn) take(ctx context.Context, urgent bool) (work context.Context, release func(), err error) {
	if urgent {
		t.addUrgent(1)
		defer t.addUrgent(-1)
	}
	select {
	case <-t.token:
	case <-ctx.Done():
		return nil, nil, fmt.Errorf("wait for the report in progress: %w", ctx.Err())
	}
	if urgent {
		return ctx, func() { t.token <- struct{}{} }, nil
	}
	work, cancel := context.WithCancelCause(ctx)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.urgent > 0 { // it queued behind this caller
		cancel(errPreempted)
	}
	t.interrupt = cancel
	return work, func() {
		t.mu.Lock()
		t.interrupt = nil
		t.mu.Unlock()
		cancel(nil)
		t.token <- struct{}{}
	}, nil
}

// addUrgent counts urgent callers, and interrupts the work in progress for them.
func (t *turn) addUrgent(more int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.urgent += more
	if t.urgent > 0 && t.interrupt != nil {
		t.interrupt(errPreempted)
	}
}

// preempted returns errPreempted in place of err if that is why the work ended.
func preempted(work context.Context, err error) error {
	if err != nil && errors.Is(context.Cause(work), errPreempted) {
		return errPreempted
	}
	return err
}
