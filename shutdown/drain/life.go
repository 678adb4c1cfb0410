package drain

import (
	"context"
	"sync"
)

// life has the progress of a drain as channels, for its callers and for the goroutines of its
// calls. Each channel is closed when its event occurs. It is safe for concurrent use.
type life struct {
	cancel, abandon func()
	cancelled       chan struct{} // no further stop is requested
	abandoned       chan struct{} // calls in progress are not waited for either
	last            chan struct{} // the last phase is over
	over            chan struct{} // Run has returned
	idle            chan struct{} // the last call has ended

	leaving <-chan struct{} // another process continues the drain; set by Run, nil if none does
}

func newLife() *life {
	l := &life{cancelled: make(chan struct{}), abandoned: make(chan struct{}), last: make(chan struct{}), over: make(chan struct{}), idle: make(chan struct{})}
	l.cancel = sync.OnceFunc(func() { close(l.cancelled) })
	l.abandon = sync.OnceFunc(func() { close(l.abandoned) })
	return l
}

// isCancelled reports whether the drain is cancelled.
func (l *life) isCancelled() bool { return Closed(l.cancelled) }

// ended reports whether no further stop may be started.
func (l *life) ended(ctx context.Context) bool { return l.isCancelled() || ctx.Err() != nil }
