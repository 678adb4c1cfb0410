package collect

import (
	"context"
	"errors"
	"sync"
	"time"

	"hostler.io/hostler/runtime"
)

const (
	// removeTimeout bounds one removal: a large image on a slow disk takes long.
	removeTimeout = 2 * time.Minute
	// shortestWait is what a removal gets at least, however many have hung.
	shortestWait = 10 * time.Second
)

// patience is how long one run waits for each removal of a runtime that answers all
// else: half as long after each that used up its time. What hangs is the oldest, and
// so the first of every run, which would else never come to the rest. It is safe for
// concurrent use.
type patience struct {
	mu    sync.Mutex // guards limit
	limit time.Duration
}

func (p *patience) now() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.limit
}

// within makes one removal within the time that is left to one, and more.
func (p *patience) within(ctx context.Context, more time.Duration, remove func(context.Context) error) error {
	limit := p.now()
	_, err := runtime.Within(ctx, limit+more, func(ctx context.Context) (struct{}, error) { return struct{}{}, remove(ctx) })
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		p.lose(limit)
	}
	return err
}

// lose takes in that a removal used up its time. Those that were under way together
// had the same time and count once.
func (p *patience) lose(had time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if had <= p.limit {
		p.limit = max(p.limit/2, shortestWait)
	}
}

// patiences are those of runtimes, by name. One goroutine owns them.
type patiences map[string]*patience

func (p patiences) of(runtimeName string) *patience {
	if p[runtimeName] == nil {
		p[runtimeName] = &patience{limit: removeTimeout}
	}
	return p[runtimeName]
}
