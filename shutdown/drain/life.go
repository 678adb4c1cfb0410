package drain

import (
	"context"
	"sync"
)

// life shows the progress of a drain as closed channels, for its callers and the goroutines of its
// calls. It is safe for concurrent use.
type life struct {
	cancel, abandon func()
	cancelled       chan struct{} // no stop is requested any more
	abandoned       chan struct{} // calls in flight are not awaited either
	last            chan struct{} // the last phase is over
	over            chan struct{} // Run returns
	idle            chan struct{} // the last call has ended

	leaving <-chan struct{} // another process continues the drain; set by Run, nil if none ever does
}

func newLife() *life {
	l := &life{cancelled: make(chan struct{}), abandoned: make(chan struct{}), last: make(chan struct{}), over: make(chan struct{}), idle: make(chan struct{})}
	l.cancel = sync.OnceFunc(func() { close(l.cancelled) })
	l.abandon = sync.OnceFunc(func() { close(l.abandoned) })
	return l
}

// isCancelled reports whether the drain is cancelled.
func (l *life) isCancelled() bool { return Closed(l.cancelled) }

// ended reports whether no further stop may begin.
func (l *life) ended(ctx context.Context) bool { return l.isCancelled() || ctx.Err() != nil }
