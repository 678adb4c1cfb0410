package discovery

import (
	"context"
	"errors"
	"sync"
	"time"

	"hostler.io/hostler/runtime"
)

// streamSteady is how long an event stream must last to count as open. Some runtimes do not confirm
// a stream, and the stream of a stopped runtime ends at once.
const streamSteady = 200 * time.Millisecond

// Watch passes the events of all runtimes to receive until ctx ends. It calls blind with false when
// a runtime's stream has opened, and with true when it has ended or does not open. It opens a
// stream again after it ends. A runtime without event streams must be polled by others.
func (r *Runtimes) Watch(ctx context.Context, receive func(runtime.Event), blind func(runtime string, blind bool)) error {
	watched, lost := map[string]bool{}, map[string]bool{}
	events := make(chan runtime.Event, 64)
	ended := make(chan string)
	tick := time.NewTicker(Interval)
	defer tick.Stop()
	var streams sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	defer streams.Wait()
	defer cancel()
	start := func() {
		for name := range lost {
			if delete(lost, name); !r.member(name) {
				blind(name, false) // the runtime was removed, so nobody waits for its events
			}
		}
		for _, m := range r.set.Members() {
			if watched[m.Name()] {
				continue
			}
			watched[m.Name()] = true
			streams.Go(func() {
				err := watch(ctx, m, events, func() { blind(m.Name(), false) })
				blind(m.Name(), true)
				r.log.Debug("event stream ended", "runtime", m.Name(), "error", err)
				if errors.Is(err, runtime.ErrUnsupported) {
					<-ctx.Done() // another attempt would not help
				}
				select {
				case ended <- m.Name():
				case <-ctx.Done():
				}
			})
		}
	}
	for start(); ; {
		select {
		case e := <-events:
			receive(e)
		case name := <-ended:
			delete(watched, name) // opened again at the next tick
			lost[name] = true
		case <-r.found:
			start()
		case <-tick.C:
			start()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// watch passes on a runtime's events until its stream ends. It calls opened when the stream is
// open.
func watch(ctx context.Context, m runtime.Runtime, events chan<- runtime.Event, opened func()) error {
	ended := make(chan error, 1)
	go func() { ended <- m.Watch(ctx, events) }()
	select {
	case err := <-ended:
		return err
	case <-time.After(streamSteady):
		opened()
	}
	return <-ended
}
