// Package outbox delivers values to a receiver that may be slow or hang, without blocking the
// sender. It queues a bounded number of values and counts those that it drops.
package outbox

import (
	"context"
	"sync/atomic"
)

// Box delivers values in order, on its own goroutine. Put is safe for concurrent use.
type Box[T any] struct {
	queue chan T
	lost  atomic.Uint64 // values dropped since the last delivery
	close chan struct{} // receives one token from Close
	ended chan struct{} // closed when the goroutine ends
}

// New starts the delivery. The queue holds up to size values. deliver may block; lost is the number
// of values that were dropped since its last call.
func New[T any](size int, deliver func(value T, lost uint64)) *Box[T] {
	b := &Box[T]{queue: make(chan T, size), close: make(chan struct{}, 1), ended: make(chan struct{})}
	go b.run(deliver)
	return b
}

// Put queues a value. If the box is full or closed, the value is dropped and counted.
func (b *Box[T]) Put(value T) {
	select {
	case b.queue <- value:
	default:
		b.lost.Add(1)
	}
}

// Close delivers the queued values, then ends the delivery. If ctx ends first, it returns the
// cause. Call it once.
func (b *Box[T]) Close(ctx context.Context) error {
	b.close <- struct{}{}
	select {
	case <-b.ended:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (b *Box[T]) run(deliver func(T, uint64)) {
	defer close(b.ended)
	for {
		select {
		case value := <-b.queue:
			deliver(value, b.lost.Swap(0))
		case <-b.close:
			for len(b.queue) > 0 { // no other goroutine receives
				deliver(<-b.queue, b.lost.Swap(0))
			}
			return
		}
	}
}
