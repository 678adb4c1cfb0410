package shutdown

import (
	"context"
	"sync"
)

// notifier passes changes to an observer in order, without blocking the guard.
type notifier struct {
	observe func(Change)
	wake    chan struct{} // capacity 1

	mu    sync.Mutex
	queue []Change // guarded by mu
}

func newNotifier(observe func(Change)) *notifier {
	return &notifier{observe: observe, wake: make(chan struct{}, 1)}
}

func (n *notifier) put(c Change) {
	n.mu.Lock()
	n.queue = append(n.queue, c)
	n.mu.Unlock()
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

func (n *notifier) run(ctx context.Context) {
	for ctx.Err() == nil {
		select {
		case <-n.wake:
		case <-ctx.Done(): // deliver the rest of the queue
		}
		n.mu.Lock()
		queue := n.queue
		n.queue = nil
		n.mu.Unlock()
		for _, c := range queue {
			n.observe(c)
		}
	}
}
