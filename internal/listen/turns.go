package listen

import (
	"context"
	"fmt"
)

// Turns lets requests that cost much run one at a time: one of root or of the user of this process, and one of all
// others. So many requests of others do not delay root.
type Turns struct{ own, others chan struct{} }

// NewTurns returns Turns that nobody has taken.
func NewTurns() Turns { return Turns{make(chan struct{}, 1), make(chan struct{}, 1)} }

// Take waits for the turn of the caller of a request, until ctx ends. It returns the function that ends the turn.
func (t Turns) Take(ctx context.Context) (release func(), err error) {
	turn := t.others
	if IsOwn(ctx) {
		turn = t.own
	}
	select {
	case turn <- struct{}{}:
		return func() { <-turn }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for the answer to others: %w", context.Cause(ctx))
	}
}
