package pace

import (
	"context"
	"errors"
	"sync"
	"time"

	"hostler.io/hostler/runtime"
)

const (
	// longestRemoval is the time limit of one removal: a large image on a slow disk takes long.
	longestRemoval = 2 * time.Minute
	// shortestRemoval is the minimum time limit of a removal.
	shortestRemoval = 10 * time.Second
)

// Patience is the time limit for removals of one run on a runtime that otherwise answers. It is two
// minutes, and halves after each removal that used it up, down to ten seconds. The object whose
// removal hangs is the oldest, and so the first of every run. With a fixed limit, the run would not
// reach the other objects. The zero value is ready to use. It is safe for concurrent use.
type Patience struct {
	mu  sync.Mutex // guards cut
	cut time.Duration
}

// Within runs one removal within the time limit plus more. If the removal uses it up, the error is
// runtime.ErrUnavailable.
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

// lose records that a removal used up its time. Parallel removals with the same limit count once.
func (p *Patience) lose(had time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if had <= longestRemoval-p.cut {
		p.cut = longestRemoval - max(had/2, shortestRemoval)
	}
}
