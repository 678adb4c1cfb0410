package pace

import (
	"context"
	"errors"
	"sync"
	"time"

	"hostler.io/hostler/runtime"
)

const (
	// longestRemoval bounds one removal: a large image on a slow disk takes long.
	longestRemoval = 2 * time.Minute
	// shortestRemoval is what one gets at least, however many have hung.
	shortestRemoval = 10 * time.Second
)

// Patience is how long one run waits for each removal of a runtime that answers all
// else: two minutes, and half as long after each that used up its time, down to ten
// seconds. What hangs is the oldest, and so the first of every run, which would else
// never come to the rest. The zero value is ready. It is safe for concurrent use.
type Patience struct {
	mu  sync.Mutex // guards cut
	cut time.Duration
}

// Within makes one removal within the time that is left to one, and more. One that
// uses it up is runtime.ErrUnavailable.
func (p *Patience) Within(ctx context.Context, more time.Duration, remove func(context.Context) error) error {
	limit := p.limit()
	_, err := runtime.Within(ctx, limit+more, func(ctx context.Context) (struct{}, error) { return struct{}{}, remove(ctx) })
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		p.lose(limit)
	}
	return err
}

func (p *Patience) limit() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return longestRemoval - p.cut
}

// lose takes in that a removal used up its time. Those that were in progress together
// had the same time and count once.
func (p *Patience) lose(had time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if had <= longestRemoval-p.cut {
		p.cut = longestRemoval - max(had/2, shortestRemoval)
	}
}
