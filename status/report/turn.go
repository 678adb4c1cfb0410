package report

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// errPreempted ends work for which a shutdown's report does not wait.
var errPreempted = errors.New("interrupted to report a shutdown first")

// turn is the lock that guards the Reporter's state. Waiting for it can have a deadline, and its
// holder yields to urgent callers.
type turn struct {
	token chan struct{} // has a token while nobody has the turn

	mu        sync.Mutex              // guards the fields below
	urgent    int                     // number of urgent callers that wait
	interrupt context.CancelCauseFunc // cancels the work of the holder; nil if it must not be cancelled
}

func newTurn() *turn {
	t := &turn{token: make(chan struct{}, 1)}
	t.token <- struct{}{}
	return t
}

// take waits until the turn is free or ctx ends. The caller works with the returned context. If an
// urgent caller waits, that context is cancelled with errPreempted as its cause, except if this
// caller is urgent, too. release gives the turn back.
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
	if t.urgent > 0 { // an urgent caller waits already
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

// addUrgent counts urgent callers, and cancels the work in progress for them.
func (t *turn) addUrgent(more int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.urgent += more
	if t.urgent > 0 && t.interrupt != nil {
		t.interrupt(errPreempted)
	}
}

// preempted returns errPreempted instead of err if that is why the work ended.
func preempted(work context.Context, err error) error {
	if err != nil && errors.Is(context.Cause(work), errPreempted) {
		return errPreempted
	}
	return err
}
